package cuda

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

var update = flag.Bool("update", false, "write what generated files should hold")

// structs lists the parameter structs of kernels, after the structs that they contain.
var structs = []any{Weight{}, Operand{}, Embed{}, Product{}, Norm{}, Attention{}, Select{}, Sum{}, Concat{}, Top{}}

// TestHeader checks that the kernels' header matches the structs of this package. These have no
// padding, and the header asserts the sizes of its structs, so the offsets agree.
func TestHeader(t *testing.T) {
	const file = "kernels/abi.cuh"
	want := header(t)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the structs give: run go test ./exec/cuda -run TestHeader -update and build the kernels", file)
	}
}

func header(t *testing.T) string {
	var b strings.Builder
	b.WriteString("// Code generated from abi.go and layout.go by their tests. DO NOT EDIT.\n#pragma once\n\n")
	b.WriteString("enum : unsigned {\n")
	for _, l := range layouts {
		fmt.Fprintf(&b, "    TYPE_%s = %d,\n", strings.ToUpper(l.Type), l.Code)
	}
	fmt.Fprintf(&b, "};\n\nenum : unsigned {\n    NO_ACTIVATION = %d,\n", NoActivation)
	for _, name := range []string{"silu", "gelu_tanh", "gelu_erf"} {
		fmt.Fprintf(&b, "    %s = %d,\n", strings.ToUpper(name), activations[name])
	}
	b.WriteString("};\n")
	for _, s := range structs {
		typ := reflect.TypeOf(s)
		fmt.Fprintf(&b, "\nstruct %s {\n", cName(typ))
		at := uintptr(0)
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Offset != at {
				t.Errorf("%s.%s is at %d and would be encoded at %d: make the padding a field", typ.Name(), f.Name, f.Offset, at)
			}
			at += f.Type.Size()
			name, kind, suffix := snake(f.Name), "", ""
			if f.Name == "_" {
				name = fmt.Sprintf("padding%d", i)
			}
			switch ft := f.Type; {
			case ft == reflect.TypeFor[Ptr]():
				if kind = f.Tag.Get("cuda"); !strings.HasSuffix(kind, "*") {
					t.Errorf("%s.%s has no tag that says what it points to", typ.Name(), f.Name)
				}
			case ft.Kind() == reflect.Array:
				kind, suffix = cName(ft.Elem()), fmt.Sprintf("[%d]", ft.Len())
			default:
				kind = cName(ft)
			}
			fmt.Fprintf(&b, "    %s %s%s;\n", kind, name, suffix)
		}
		if at != typ.Size() {
			t.Errorf("%s is encoded as %d bytes and takes %d: make the padding a field", typ.Name(), at, typ.Size())
		}
		fmt.Fprintf(&b, "};\nstatic_assert(sizeof(%s) == %d, \"no padding but what is a field\");\n", cName(typ), typ.Size())
	}
	return b.String()
}

// cName is a type's name in the header.
func cName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Uint32:
		return "unsigned"
	case reflect.Float32:
		return "float"
	}
	return t.Name()
}

// snake turns RowsPerBlock into rows_per_block, and KVHeads into kv_heads.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		next := i+1 < len(name) && unicode.IsLower(rune(name[i+1]))
		if unicode.IsUpper(r) && i > 0 && (unicode.IsLower(rune(name[i-1])) || next) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// TestEncode checks that the encoding of a struct equals its memory layout on a little-endian
// machine.
func TestEncode(t *testing.T) {
	got, err := encode(Operand{Weight{0x0102030405060708, 13, 9, 10}, 11, 12})
	want := []byte{8, 7, 6, 5, 4, 3, 2, 1, 13, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0}
	if err != nil || string(got) != string(want) {
		t.Errorf("% x, %v", got, err)
	}
}
