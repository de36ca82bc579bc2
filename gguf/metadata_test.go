package gguf

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// one of each kind, at the limits of its range if it has a range.
var everyKind = []struct {
	key, data string
	kind      Kind
	any       any
	text      string
	json      string
}{
	{"u8", num(uint8(255)), Uint8, uint64(255), "255", "255"},
	{"i8", num(uint8(0x80)), Int8, int64(-128), "-128", "-128"},
	{"u16", num(uint16(65535)), Uint16, uint64(65535), "65535", "65535"},
	{"i16", num(uint16(0x8000)), Int16, int64(-32768), "-32768", "-32768"},
	{"u32", num(uint32(math.MaxUint32)), Uint32, uint64(math.MaxUint32), "4294967295", "4294967295"},
	{"i32", num(uint32(7)), Int32, int64(7), "7", "7"},
	{"f32", num(math.Float32bits(1e-6)), Float32, float64(float32(1e-6)), "1e-06", "9.999999974752427e-7"},
	{"f32 NaN", num(math.Float32bits(float32(math.Inf(-1)))), Float32, math.Inf(-1), "-Inf", `"-Inf"`},
	{"bool", "\x01", Bool, true, "true", "true"},
	{"string", S("a\n\"é\xff"), String, "a\n\"é\xff", `"a\n\"é\xff"`, `"a\n\"é\ufffd"`},
	{"long", S(strings.Repeat("é", 60)), String, strings.Repeat("é", 60), `"` + strings.Repeat("é", 50) + `"… 120 bytes`, `"` + strings.Repeat("é", 60) + `"`},
	{"u64", num(uint64(math.MaxUint64)), Uint64, uint64(math.MaxUint64), "18446744073709551615", "18446744073709551615"},
	{"i64", num(uint64(1 << 63)), Int64, int64(math.MinInt64), "-9223372036854775808", "-9223372036854775808"},
	{"f64", num(math.Float64bits(0.1)), Float64, 0.1, "0.1", "0.1"},
	{"ints", A(Int16, 3, "\x01\x00\xff\xff\x00\x80"), Array, []any{int64(1), int64(-1), int64(-32768)}, "[1, -1, -32768]", "[1,-1,-32768]"},
	{"many", A(Uint8, 8, "\x00\x01\x02\x03\x04\x05\x06\x07"), Array, []any{uint64(0), uint64(1), uint64(2), uint64(3), uint64(4), uint64(5), uint64(6), uint64(7)}, "[0, 1, 2, 3, 4, 5, … 8 in all]", "[0,1,2,3,4,5,6,7]"},
	{"bools", A(Bool, 2, "\x01\x00"), Array, []any{true, false}, "[true, false]", "[true,false]"},
	{"floats", A(Float32, 2, num(math.Float32bits(0.1))+num(math.Float32bits(-2))), Array, []any{float64(float32(0.1)), -2.0}, "[0.1, -2]", "[0.10000000149011612,-2]"},
	{"doubles", A(Float64, 1, num(math.Float64bits(0.1))), Array, []any{0.1}, "[0.1]", "[0.1]"},
	{"strings", A(String, 3, S("a")+S("")+S("b c")), Array, []any{"a", "", "b c"}, `["a", "", "b c"]`, `["a","","b c"]`},
	{"none", A(String, 0, ""), Array, []any{}, "[]", "[]"},
	{"big", A(Uint64, 1, num(uint64(1<<63))), Array, []any{uint64(1 << 63)}, "[9223372036854775808]", "[9223372036854775808]"},
}

func parseEveryKind(t *testing.T) *File {
	t.Helper()
	data := H(3, 0, uint64(len(everyKind)))
	for _, k := range everyKind {
		data += KV(k.key, k.kind, k.data)
	}
	f, err := Parse("kinds.gguf", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestValues(t *testing.T) {
	f := parseEveryKind(t)
	for i, k := range everyKind {
		if f.Keys()[i] != k.key {
			t.Errorf("key %d is %q, want %q", i, f.Keys()[i], k.key)
		}
		v, ok := f.Value(k.key)
		if !ok || v.Kind() != k.kind {
			t.Errorf("%s: kind %v, want %v", k.key, v.Kind(), k.kind)
		}
		if got := v.Any(); !reflect.DeepEqual(got, k.any) {
			t.Errorf("%s: value %#v, want %#v", k.key, got, k.any)
		}
		if got := v.String(); got != k.text {
			t.Errorf("%s: printed %s, want %s", k.key, got, k.text)
		}
		if got, err := v.MarshalJSON(); err != nil || string(got) != k.json {
			t.Errorf("%s: JSON %s, %v, want %s", k.key, got, err, k.json)
		}
	}
}

func TestTypedAccess(t *testing.T) {
	f := parseEveryKind(t)
	calls := map[string]func(key string) (any, error){
		"Str":    func(k string) (any, error) { return f.Str(k) },
		"Uint":   func(k string) (any, error) { return f.Uint(k) },
		"Float":  func(k string) (any, error) { return f.Float(k) },
		"Bool":   func(k string) (any, error) { return f.Bool(k) },
		"Strs":   func(k string) (any, error) { return f.Strs(k) },
		"Ints":   func(k string) (any, error) { return f.Ints(k) },
		"Floats": func(k string) (any, error) { return f.Floats(k) },
	}
	want := map[string]map[string]any{
		"Str":    {"string": "a\n\"é\xff", "long": strings.Repeat("é", 60)},
		"Uint":   {"u8": uint64(255), "u16": uint64(65535), "u32": uint64(math.MaxUint32), "i32": uint64(7), "u64": uint64(math.MaxUint64)},
		"Float":  {"f32": float64(float32(1e-6)), "f32 NaN": math.Inf(-1), "f64": 0.1},
		"Bool":   {"bool": true},
		"Strs":   {"strings": []string{"a", "", "b c"}, "none": []string{}},
		"Ints":   {"ints": []int64{1, -1, -32768}, "many": []int64{0, 1, 2, 3, 4, 5, 6, 7}, "bools": []int64{1, 0}},
		"Floats": {"floats": []float32{0.1, -2}, "doubles": []float32{0.1}},
	}
	for name, call := range calls {
		for _, k := range everyKind {
			got, err := call(k.key)
			if w, ok := want[name][k.key]; ok {
				if err != nil || !reflect.DeepEqual(got, w) {
					t.Errorf("%s(%q) = %v, %v, want %v", name, k.key, got, err, w)
				}
				continue
			}
			if err == nil {
				t.Errorf("%s(%q) = %v, want an error", name, k.key, got)
				continue
			}
			if s := err.Error(); !strings.HasPrefix(s, "kinds.gguf: key \""+k.key+`": `) || !strings.Contains(s, "expected") || errors.Is(err, ErrNoKey) {
				t.Errorf("%s(%q): error %q", name, k.key, s)
			}
		}
		if _, err := call("absent"); !errors.Is(err, ErrNoKey) || err.Error() != `kinds.gguf: key "absent": no such key` {
			t.Errorf("%s of an absent key: error %q", name, err)
		}
	}
	for key, n := range map[string]int{"ints": 3, "none": 0, "strings": 3} {
		if got, ok := f.Len(key); !ok || got != n {
			t.Errorf("Len(%q) = %d, %v, want %d", key, got, ok, n)
		}
	}
	for _, key := range []string{"u8", "string", "absent"} {
		if _, ok := f.Len(key); ok {
			t.Errorf("Len(%q) found an array", key)
		}
	}
	if f.Has("absent") || !f.Has("u8") {
		t.Error("Has is wrong")
	}
}
