package plan

import (
	"math"
	"strings"
	"testing"
)

func TestEval(t *testing.T) {
	s := Scope{T: 512, R: 8, S: 2, C: 4096, P: 256, Rows: "R", Index: 1, Params: []Param{
		{"n", int64(896)}, {"n1", int64(128)}, {"kv_heads", int64(2)}, {"zero", int64(0)},
		{"negative", int64(-1)}, {"huge", int64(math.MaxInt64)}, {"eps", 0.5},
	}}
	for _, c := range []struct {
		formula string
		want    int64
		err     string
	}{
		{"1", 1, ""},
		{"T", 512, ""},
		{"T*n", 512 * 896, ""},
		{" M * n# + 1 ", 8*128 + 1, ""},
		{"2+3*4", 14, ""},
		{"(2+3)*4", 20, ""},
		{"12/2/3", 2, ""},
		{"2*(R+S*P)/4", (8 + 2*256) / 2, ""},
		{"n/kv_heads", 448, ""},
		{"zero*huge*2", 0, ""},
		{"huge", math.MaxInt64, ""},

		{"", 0, "expected a number, a name or ("},
		{"T*", 0, "expected a number"},
		{"T n", 0, "expected an operator or the end"},
		{"(T", 0, "expected )"},
		{"T-1", 0, "expected an operator"},
		{"-1", 0, "expected a number"},
		{"7/2", 0, "7 is not a multiple of 2"},
		{"7/0", 0, "division by 0"},
		{"n/zero", 0, "division by 0"},
		{"n/T", 0, "division by T"},
		{"n/M", 0, "division by M"},
		{"n/nothing", 0, "division by nothing"},
		{"nothing", 0, "nothing is not known"},
		{"eps", 0, "eps is not known"},
		{"kv_heads#", 0, "kv_heads# is not known"},
		{"negative", 0, "negative is -1"},
		{"huge+1", 0, "exceeds"},
		{"huge*2", 0, "exceeds"},
		{"2*huge", 0, "exceeds"},
		{"9223372036854775808", 0, "expected a number"},
		{"4294967296*4294967296", 0, "exceeds"},
		{strings.Repeat("(", 300), 0, "300 characters"},
	} {
		got, err := s.Eval(c.formula)
		if c.err == "" {
			if err != nil || got != c.want {
				t.Errorf("Eval(%q) = %d, %v; want %d", c.formula, got, err, c.want)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("Eval(%q) = %d, %v; want an error with %q", c.formula, got, err, c.err)
		}
	}
}

// M is the number of rows of a step, so outside a step it is an error and not 0.
func TestEvalOutsideStep(t *testing.T) {
	s := (&Plan{Target: Target{Ubatch: 4, Ctx: 17, Sequences: 1, Rows: 1}}).Scope(nil)
	if got, err := s.Eval("M*4"); err == nil {
		t.Errorf("Eval(M*4) = %d outside a step, want an error", got)
	}
	if s.P != 2 {
		t.Errorf("a context of 17 has %d pages, want 2", s.P)
	}
}

// Evaluation at a program's bounds is enough only if no formula is larger for a smaller run.
func TestEvalGrowsWithEveryBound(t *testing.T) {
	small := Scope{T: 3, R: 2, S: 1, C: 40, P: 3, Rows: "T"}
	for i := range kernels {
		sig := &kernels[i]
		for _, f := range formulas(sig) {
			s := small
			s.Params = sample(sig)
			before, err := s.Eval(f)
			if err != nil {
				t.Errorf("%s: %v", sig.Name, err)
				continue
			}
			for name, bound := range map[string]*int64{"T": &s.T, "R": &s.R, "S": &s.S, "C": &s.C, "P": &s.P} {
				*bound += 5
				if after, err := s.Eval(f); err != nil || after < before {
					t.Errorf("%s: %s goes from %d to %d (%v) as %s grows", sig.Name, f, before, after, err, name)
				}
				*bound -= 5
			}
		}
	}
}

// Comparing extents at the corners is enough only if each is linear in T and in R.
func TestExtentsAreLinear(t *testing.T) {
	for i := range kernels {
		sig := &kernels[i]
		for j := range sig.Operands {
			o := &sig.Operands[j]
			if o.Dir == WeightIn {
				continue
			}
			s := Scope{S: 2, C: 40, P: 3, Params: sample(sig)}
			at := func(rows string, tokens, r int64) int64 {
				s.Rows, s.T, s.R = rows, tokens, r
				n, err := s.Eval(o.Extent)
				if err != nil {
					t.Fatalf("%s: %v", sig.Name, err)
				}
				return n
			}
			for _, rows := range []string{"T", "R"} {
				for n := range int64(5) {
					if a, b, c := at(rows, n, 3), at(rows, n+1, 3), at(rows, n+2, 3); c-b != b-a {
						t.Errorf("%s: %s of %s bends at T=%d: %d, %d, %d", sig.Name, o.Extent, o.Role, n, a, b, c)
					}
					if a, b, c := at(rows, 3, n), at(rows, 3, n+1), at(rows, 3, n+2); c-b != b-a {
						t.Errorf("%s: %s of %s bends at R=%d: %d, %d, %d", sig.Name, o.Extent, o.Role, n, a, b, c)
					}
				}
			}
		}
	}
}

func formulas(sig *Signature) []string {
	var list []string
	for _, o := range sig.Operands {
		list = append(list, strings.Split(o.Extent, ",")...)
	}
	if sig.Scratch != "" {
		list = append(list, sig.Scratch)
	}
	return list
}

// sample gives every parameter of a kernel a value of its kind.
func sample(sig *Signature) []Param {
	var params []Param
	for _, spec := range sig.Params {
		for i := range repeats(spec.Repeat) {
			p := Param{Name: indexed(spec.Name, spec.Repeat, i), Value: spec.Kind}
			switch spec.Kind.(type) {
			case int64:
				p.Value = int64(64)
			case string:
				p.Value = spec.Words[0]
			}
			params = append(params, p)
		}
	}
	return params
}

func TestFormatSize(t *testing.T) {
	q, _ := LookupFormat("q8x2")
	f, _ := LookupFormat("f32")
	for _, c := range []struct {
		format Format
		elems  int64
		want   int64 // −1 for an error
	}{
		{f, 0, 0}, {f, 3, 12}, {f, math.MaxInt64 / 4, math.MaxInt64 / 4 * 4}, {f, math.MaxInt64/4 + 1, -1}, {f, -1, -1},
		{q, 0, 0}, {q, 32, 76}, {q, 896, 896 * 19 / 8}, {q, 31, -1}, {q, 33, -1},
	} {
		got, err := c.format.Size(c.elems)
		if (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("%s.Size(%d) = %d, %v; want %d", c.format.Name, c.elems, got, err, c.want)
		}
	}
	if _, ok := LookupFormat("f64"); ok {
		t.Error("f64 is a format, want none")
	}
}
