package ptx

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const head = ".version 8.8\n.target sm_75, debug\n.address_size 64\n"

func TestParse(t *testing.T) {
	m, err := Parse([]byte(head + `
/* a comment
   of two lines */
.extern .shared .align 32 .b8 dynamic[];
.shared .align 4 .b8 outside[12];
.global .align 4 .u32 list[3] = {1, 0x10, 4294967295};
.const .f32 one = 0f3F800000;
.visible .entry first(.param .u32 p0, .param .align 8 .b8 p1[24])
.maxntid 128, 2, 1
{
	.reg .pred %p<3>;
	.reg .b32 %r<4>;
	.reg .f32 x, y;
	.reg .b64 %rd<2>;
	.shared .align 16 .b8 own[20];
	.local .align 8 .b8 depot[9];
	// a comment
	ld.param.u64 %rd1, [p1+8];
	@!%p1 bra END;
	{ .reg .b32 t; mov.b32 t, 5; mov.b32 %r1, t; }
	mov.u64 %rd1, dynamic;
	add.s32 %r1, %r2, -7;
	ld.shared.v4.f32 {x, _, y, x}, [%rd1+-16];
	st.shared.u8 [outside+3], %r1;
	shfl.sync.bfly.b32 %r1|%p2, %r2, 1, 31, -1;
	setp.eq.and.s32 %p1, %r1, %r2, !%p2;
	mov.u32 %r3, %tid.x;
	mov.f32 x, 0fBF800000;
	fma.rn.f32 x, -0f3F800000, y, 0.5;
END:
	ret;
}
.entry second() { ret; }
`))
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != "8.8" || m.Target != "sm_75" || len(m.Kernels) != 2 {
		t.Fatalf("%+v", m)
	}
	if len(m.Variables) != 2 || !slices.Equal(m.Variables[0].Data, []byte{1, 0, 0, 0, 16, 0, 0, 0, 255, 255, 255, 255}) || !slices.Equal(m.Variables[1].Data, []byte{0, 0, 128, 63}) {
		t.Errorf("variables %+v", m.Variables)
	}
	k := m.Kernels[0]
	// own is at 0 and outside at 20. Dynamic shared memory begins at a multiple of 32.
	if k.ParamBytes != 32 || k.SharedBytes != 32 || k.SharedAlign != 32 || k.LocalBytes != 9 || k.MaxThreads != 256 {
		t.Errorf("kernel %+v", k)
	}
	if k.Registers != [Classes]int{3, 4 + 2 + 1, 2} {
		t.Errorf("registers %v", k.Registers)
	}
	at := func(i, j int) Operand { return k.Code[i].Args[j] }
	for what, ok := range map[string]bool{
		"parameter":   at(0, 1).Kind == Address && at(0, 1).Value == 16 && at(0, 1).Space == Param,
		"guard":       k.Code[1].Guard != nil && k.Code[1].Guard.Not && k.Code[1].Guard.Index == 1,
		"label":       at(1, 0).Kind == Label && at(1, 0).Index == 13,
		"scope":       at(2, 0).Index == 6 && at(3, 1).Index == 6,
		"dynamic":     at(4, 1).Kind == Symbol && at(4, 1).Value == 32 && at(4, 1).Space == Shared,
		"negative":    at(5, 2).Value == 1<<64-7,
		"vector":      len(at(6, 0).Parts) == 4 && at(6, 0).Parts[1].Kind == Sink && at(6, 0).Parts[2].Index == 5,
		"offset":      at(6, 1).Kind == Address && at(6, 1).Value == 1<<64-16 && at(6, 1).Class == Long,
		"outside":     at(7, 0).Value == 20+3,
		"two results": at(8, 0).Index == 1 && at(8, 0).Parts[0].Class == Pred && at(8, 0).Parts[0].Index == 2,
		"not":         at(9, 3).Not,
		"special":     at(10, 1).Kind == Special && at(10, 1).Name == "%tid.x",
		"float":       at(11, 1).Float && at(11, 1).Bits == 32 && at(11, 1).Value == 0xbf800000,
		"minus float": at(12, 1).Value == 0xbf800000 && at(12, 3).Bits == 64,
		"opcode":      k.Code[6].Opcode() == "ld.shared.v4.f32" && k.Code[6].Type() == "f32" && k.Code[6].Has("v4"),
		"line":        k.Code[0].Line == 21,
	} {
		if !ok {
			t.Errorf("%s is wrong", what)
		}
	}
}

// tableInItself has a branch table that lists its own name.
const tableInItself = head + ".entry k() {\n.reg .b32 %r<3>;\nbrx.idx %r1, T; T: .branchtargets T; ret;}"

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "line 1: no .version",
		head + "foo":       "line 4: foo is not supported here",
		head + "/* ":       "unterminated comment",
		head + ".file \"x": "unterminated string",
		head + "\x01":      "character",
		".version 8.8\n.target sm_75\n.address_size 32": "line 3: .address_size is not 64",
		head + ".entry k() {":                           "line 4: kernel k is unterminated",
		head + ".entry k() {}\n.entry k() {}":           "line 5: kernel k is defined twice",
		head + ".entry k() {\nA: A: ret;}":              "line 5: label A is defined twice",
		head + ".entry k() {\nbra B;}":                  "line 5: B is not declared",
		head + ".entry k() {\n.reg .b32 a, a;}":         "line 5: a is declared twice",
		tableInItself:                                   "line 6: T is not declared",
		head + ".entry k() {\n.reg .b128 a;}":           "line 5: registers of type \".b128\"",
		head + ".entry k() {\n.reg .b32 %r<70000>;}":    "line 5: 70000 registers",
		head + ".entry k() {\nld.u32 5 6;}":             "line 5: \"6\" where \",\" is expected",
		head + ".entry k() {\nld.u32 [x];}":             "line 5: \"x\" is not an address",
		head + ".entry k() {\n@5 ret;}":                 "line 5: the guard is not a predicate",
		head + ".entry k() {\nmov.u32 %r, 0xfg;}":       "line 5: \"0xfg\" where a number",
		head + ".entry k() {\n.shared .b8 a[2000000];}": "line 5: a does not fit",
		head + ".entry k(.shared .b32 a) {}":            "line 4: a is not a parameter",
		head + ".global .b32 a[2] = {1,2,3};":           "line 4: a has 8 bytes but its initial value has 12",
		head + ".global .b32 a[];":                      "line 4: a has no size",
		head + ".extern .global .b32 a[];":              "line 4: a is extern but not in .shared",
		head + ".param .b32 a;":                         "line 4: .param is not supported here",
		head + ".func f() { ret; }":                     "line 4: .func is not supported here",
	} {
		_, err := Parse([]byte(text))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// FuzzParse checks that no text makes the parser panic or return a label without a position.
func FuzzParse(f *testing.F) {
	f.Add(head + ".entry k(.param .b64 p) { .reg .b32 %r<3>; A: mov.u32 %r1, %tid.x; @!%p bra A; {ret;} }")
	f.Add(head + ".global .f32 a[2] = {0f00000000, 1.5};\n.extern .shared .b8 s[];")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse([]byte(text))
		if err != nil {
			return
		}
		for _, k := range m.Kernels {
			for _, in := range k.Code {
				for _, o := range in.Args {
					if o.Kind == Label && (o.Index < 0 || o.Index > len(k.Code)) {
						t.Fatalf("label at %d of %d", o.Index, len(k.Code))
					}
				}
			}
		}
	})
}
