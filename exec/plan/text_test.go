package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// awkward returns a plan with values that are hard to print. It need not be valid.
func awkward() *plan.Plan {
	return &plan.Plan{
		Version: plan.Version,
		Model: plan.Model{Arch: "", Name: "new\nline \x00 \xff \"quoted\" # no comment", File: `C:\models\ä b.gguf`,
			Size: math.MaxInt64, HeaderDigest: "sha256:0", WeightsDigest: "sha256:1"},
		Sidecar: plan.Sidecar{File: "a b", Size: -1, WeightsDigest: "x\n"},
		Target:  plan.Target{Backend: "c p u", ISA: "avx512vnni+amx", Precision: "exact", KV: "f32", Threads: math.MaxInt, Ctx: math.MinInt64, Ubatch: -1, Rows: 1},
		Passes:  "-fuse_gated_mlp,-fuse_qkv",
		Memory:  plan.Memory{Weight: -1, Packed: 2, State: 3, IO: 4, Arena: 5, ArenaLowerBound: 6, ArenaUnshared: math.MaxInt64},
		Weights: []plan.Weight{
			{Name: "@=[]{} ", Type: "f32", Dims: []int64{0}, Size: 1},
			{Name: "", Type: "", Dims: []int64{-1, 2, 3, 4}},
		},
		Buffers: []plan.Buffer{
			{ID: 7, Class: plan.State, Name: "", Format: "", Elems: "(T + 1)/2", Size: 1},
			{ID: 7, Class: "", Name: "b7", Format: "f32", Elems: "1"},
		},
		Programs: []plan.Program{
			{Name: "no waves", Chunk: -3, MinT: 5, MaxT: -5, MaxR: 0},
			{Name: "", Buffers: []plan.Buffer{
				{ID: -1, Class: plan.Arena, Name: "x", Format: "f32", Elems: "T", Each: true, Offset: -64, First: -3, Last: 2},
				{ID: 0, Class: plan.IO, Name: "y", Format: "f32", Elems: "T", Size: 4},
			}, Waves: []plan.Wave{{}, {Steps: []plan.Step{
				{ID: 9, Name: "", Layer: -1, Kernel: "", Rows: "", Scratch: -1},
				{ID: -9, Name: "layer=3", Layer: 0, Kernel: "a[b", Rows: "T", Split: plan.Split{By: "rows/4", Unit: 4}, Scratch: 0,
					Args: []plan.Arg{
						{Role: "->", Buffer: 3},
						{Role: "b3", Buffer: -1, Weight: "b3"},
						{Role: "{", Buffer: -1, Weight: "a b", Kernel: "b3"},
						{Role: "k", Buffer: -1, Weight: "", Kernel: "gemv.q5_0 x"},
						{Role: "out", Buffer: -2},
					},
					Params: []plan.Param{
						{Name: "zero", Value: int64(0)}, {Name: "zero", Value: 0.0}, {Name: "minus", Value: math.Copysign(0, -1)},
						{Name: "least", Value: int64(math.MinInt64)}, {Name: "big", Value: 1e300}, {Name: "small", Value: 5e-324},
						{Name: "third", Value: 1.0 / 3}, {Name: "whole", Value: 1e6}, {Name: "infinite", Value: math.Inf(-1)},
						{Name: "a=b", Value: "}"}, {Name: "number", Value: "12"}, {Name: "empty", Value: ""},
					}},
			}}},
			},
		},
	}
}

func TestParseReadsWhatPrintWrote(t *testing.T) {
	for name, p := range map[string]*plan.Plan{
		"empty":   {Version: plan.Version},
		"small":   plantest.Plan(1),
		"large":   plantest.Plan(24),
		"awkward": awkward(),
	} {
		text := plan.Print(p)
		q, err := plan.Parse(text)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		if !reflect.DeepEqual(p, q) {
			t.Errorf("%s: the plan that was read differs from the one that was printed:\n%s\n%s", name, text, plan.Print(q))
		}
		if !bytes.Equal(plan.Print(q), text) {
			t.Errorf("%s: printed twice, the text differs", name)
		}
	}
}

// reflect.DeepEqual alone does not see the sign of a zero or the bits of a fraction.
func TestParseKeepsBits(t *testing.T) {
	q, err := plan.Parse(plan.Print(awkward()))
	if err != nil {
		t.Fatal(err)
	}
	want := awkward().Programs[1].Waves[1].Steps[1].Params
	for i, p := range q.Programs[1].Waves[1].Steps[1].Params {
		if w, ok := want[i].Value.(float64); ok && math.Float64bits(w) != math.Float64bits(p.Value.(float64)) {
			t.Errorf("%s: read %v, printed %v", p.Name, p.Value, w)
		}
	}
}

func TestGolden(t *testing.T) {
	const path = "testdata/small.golden"
	text := plan.Print(plantest.Plan(1))
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Errorf("the text differs from %s; if on purpose, run the test with -update. Got:\n%s", path, text)
	}
}

func TestParseAcceptsEditing(t *testing.T) {
	p := plantest.Plan(1)
	text := string(plan.Print(p))
	text = strings.ReplaceAll(text, "\nbuffer ", "\n\n\t buffer   ")
	text = strings.ReplaceAll(text, "\n  wave ", "\n# A remark.\n wave ")
	text = strings.ReplaceAll(text, "} scratch", "}    scratch")
	text = strings.ReplaceAll(text, "-> ", "")
	text = strings.ReplaceAll(text, "split=each", `split="each"`)
	if _, err := plan.Parse([]byte(text)); !errors.Is(err, plan.ErrNotSealed) || !strings.Contains(err.Error(), "seal it") {
		t.Errorf("before sealing: %v, want ErrNotSealed, which says to seal", err)
	}
	q, err := plan.Parse(plan.Seal([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p, q) {
		t.Error("the edited text says something else")
	}
}

func TestSeal(t *testing.T) {
	text := plan.Print(plantest.Plan(1))
	if got := plan.Seal(text); !bytes.Equal(got, text) {
		t.Error("sealing a sealed plan changes it")
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	unsealed := bytes.Join(lines[:len(lines)-2], nil)
	for name, in := range map[string][]byte{
		"no last line":      unsealed,
		"no line end":       bytes.TrimRight(unsealed, "\n"),
		"a wrong digest":    append(bytes.Clone(unsealed), "end sha256:00\n"...),
		"an empty digest":   append(bytes.Clone(unsealed), "end \n"...),
		"blanks at the end": append(bytes.Clone(text), "\n\n"...),
	} {
		if _, err := plan.Parse(in); err == nil {
			t.Errorf("%s: read without an error", name)
		}
		if _, err := plan.Parse(plan.Seal(in)); err != nil {
			t.Errorf("%s, sealed again: %v", name, err)
		}
	}
	if _, err := plan.Parse(plan.Seal(nil)); err == nil {
		t.Error("read an empty plan without an error")
	}
}

func TestParseNoticesEveryByte(t *testing.T) {
	text := plan.Print(plantest.Plan(1))
	for i := range text {
		changed := bytes.Clone(text)
		changed[i] ^= 1
		if _, err := plan.Parse(changed); err == nil {
			t.Fatalf("byte %d changed from %q to %q, and the plan was read", i, text[i], changed[i])
		}
		if _, err := plan.Parse(text[:i]); err == nil {
			t.Fatalf("cut off after %d bytes, and the plan was read", i)
		}
	}
}

func TestParseErrors(t *testing.T) {
	text := string(plan.Print(plantest.Plan(1)))
	for _, c := range []struct{ name, old, new, want string }{
		{"newer format", "pesti-plan 2", "pesti-plan 3", "plan format 3, this program reads 2; compile the model again or use a newer program"},
		{"older format", "pesti-plan 2", "pesti-plan 1", "plan format 1 of an older program, this one reads 2; compile the model again"},
		{"format 0", "pesti-plan 2", "pesti-plan 0", `line 1: found version "0", expected 2`},
		{"no number", "pesti-plan 2", "pesti-plan one", `line 1: found version "one"`},
		{"no plan", "pesti-plan 2", "GGUF", `line 1: found "GGUF", expected "pesti-plan" and a version`},
		{"unknown line", "passes ", "passe ", `line 6: found "passe  \"\"", expected one of model, digest`},
		{"sidecar twice", "target ", "sidecar file=a size=1 directory=b data=c\nsidecar file=a size=1 directory=b data=c\ntarget ", "expected one line for a sidecar at most"},
		{"line twice", "passes ", "passes \"\"\npasses ", `line 7: found a second line "passes", expected one`},
		{"line missing", "passes  \"\"\n", "", `no line "passes", expected one`},
		{"no integer", "size=123456", "size=many", `line 3: found "many", expected an integer of 64 bits`},
		{"fraction", "size=123456", "size=1.5", `line 3: found "1.5", expected an integer`},
		{"too large", "size=123456", "size=9223372036854775808", "line 3: found \"9223372036854775808\", expected an integer"},
		{"key missing", " size=123456", "", "line 3: found the end of the line, expected size="},
		{"key wrong", "threads<=2", "threads=2", `line 5: found "threads=2 ctx=40 ubatch=32 sequences=1 rows=4", expected threads<=`},
		{"more on the line", "ubatch=32 sequences=1 rows=4", "ubatch=32 sequences=1 rows=4 rows=5", `line 5: found "rows=5", expected the end of the line`},
		{"open quote", `file="../models/a model.gguf"`, `file="../models`, "expected a path"},
		{"no dims", "q8_0[100, 64]", "q8_0[]", `found "] size=6400", expected an integer`},
		{"open dims", "q8_0[100, 64]", "q8_0[100, 64", "expected ]"},
		{"no buffer", "buffer b0 ", "buffer 0 ", "expected a buffer, b and its number"},
		{"wave out of order", "wave 1\n", "wave 2\n", "found wave 2, expected 1"},
		{"no kernel", "embed[T]", "[T]", "expected a kernel"},
		{"no operand", "y=b8 {n=64, vocab", "{n=64, vocab", "expected an operand"},
		{"operand without a value", "tokens=b0 ", "tokens= ", "expected a buffer, b and its number"},
		{"open parameters", `scale=1.0}`, `scale=1.0`, "expected ,"},
		{"parameter without a comma", `n=64, vocab`, `n=64 vocab`, "expected ,"},
		{"parameter of no kind", `scale=1.0}`, `scale=one}`, `found "one}", expected an integer, a number or a quoted word`},
		{"parameter out of range", `scale=1.0}`, `scale=1e999}`, `found "1e999}", expected a number between -1.79`},
		{"bad scratch", "scratch=b10", "scratch=10", `found "10", expected a buffer`},
		{"step before a wave", "  wave 0\n", "", "expected a wave before the first step"},
		{"wave before a program", "\npasses ", "\nwave 0\npasses ", "line 6: found \"0\", expected a program before the first wave"},
	} {
		if !strings.Contains(text, c.old) {
			t.Errorf("%s: the plan has no %q", c.name, c.old)
			continue
		}
		_, err := plan.Parse(plan.Seal([]byte(strings.Replace(text, c.old, c.new, 1))))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %q, want it to contain %q", c.name, err, c.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", c.name, err)
		}
	}
}

// Parse never panics, and a parsed plan prints to a text that parses to the same plan.
func FuzzParse(f *testing.F) {
	f.Add(plan.Print(plantest.Plan(1)))
	f.Add(plan.Print(awkward()))
	f.Add([]byte("pesti-plan 2\nprogram a 1 <= T <= 1, R <= 1\nwave 0\nstep 0 a b[T] split=c/1 x=b0 y=k@w -> {a=1, b=\"c\"} scratch=b1\n"))
	f.Add([]byte("pesti-plan 2\nweight @\"\\xff\" q[1] size=1\nbuffer b0 arena f32 T size=1 each=1 offset=0 steps=[0,1) x\n"))
	f.Add([]byte("end \nend \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = plan.Parse(text) // the digest rejects most of them
		p, err := plan.Parse(plan.Seal(text))
		if err != nil {
			return
		}
		_ = plan.Verify(p)
		printed := plan.Print(p)
		q, err := plan.Parse(printed)
		if err != nil {
			t.Fatalf("cannot read what was printed: %v\n%s", err, printed)
		}
		if again := plan.Print(q); !bytes.Equal(again, printed) {
			t.Fatalf("printed twice, the text differs:\n%s\n%s", printed, again)
		}
	})
}

func TestJSON(t *testing.T) {
	p := plantest.Plan(3)
	p.Programs[0].Waves[0].Steps[0].Kernel = "ref.get_rows"
	text, err := plan.JSON(p)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Memory   map[string]int64
		Programs map[string]*struct {
			Tokens        [2]int64
			Steps, Waves  int
			StepsPerLayer int `json:"steps_per_layer"`
			WavesPerLayer int `json:"waves_per_layer"`
		}
		Fusions   map[string]int
		Fallbacks *int
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	m := p.Memory
	for name, want := range map[string]int64{
		"weight": m.Weight, "packed": m.Packed, "state": m.State, "io": m.IO,
		"arena": m.Arena, "arena_lower_bound": m.ArenaLowerBound, "arena_unshared": m.ArenaUnshared,
	} {
		if n, ok := got.Memory[name]; !ok || n != want {
			t.Errorf("memory: %s is %d, want %d", name, n, want)
		}
	}
	// One step for the embedding, 9 for each of 3 layers, and 3 for the head. A layer's norm and
	// product join the wave before its attention, so 5 waves hold steps of a layer.
	g := got.Programs["prefill"]
	if g.Tokens != [2]int64{2, plantest.Ubatch} || g.Steps != 1+3*9+3 || g.Waves != 1+3*5 || g.StepsPerLayer != 9 || g.WavesPerLayer != 5 {
		t.Errorf("program prefill: %+v", g)
	}
	if small, has := got.Programs["small"]; len(got.Programs) != 4 || !has || small != nil || !reflect.DeepEqual(got.Fusions, map[string]int{"qkv": 3, "gated_mlp": 3, "attention": 3}) {
		t.Errorf("programs %v, fusions %v", got.Programs, got.Fusions)
	}
	if got.Fallbacks == nil || *got.Fallbacks != 1 {
		t.Errorf("fallbacks: %v, want 1", got.Fallbacks)
	}
}

func TestIsPlan(t *testing.T) {
	text := plan.Print(plantest.Plan(0))
	for _, c := range []struct {
		head string
		want bool
	}{
		{string(text), true},
		{string(text[:12]), true},
		{"pesti-plan 9999", true}, // is a plan, though Parse refuses it
		{"pesti-plan", true},
		{"pesti-pla", false},
		{"GGUF", false},
		{" pesti-plan 2", false},
		{"", false},
	} {
		if got := plan.IsPlan([]byte(c.head)); got != c.want {
			t.Errorf("IsPlan(%.20q) = %v, want %v", c.head, got, c.want)
		}
	}
}

func TestHeadBackend(t *testing.T) {
	p := plantest.Plan(1)
	text := string(plan.Print(p))
	target := strings.Index(text, "\ntarget ")
	cuda := strings.Replace(text, "\ntarget  cpu ", "\ntarget  cuda ", 1)
	if target < 0 || cuda == text {
		t.Fatalf("the plan has no target cpu:\n%s", text)
	}
	for _, c := range []struct{ name, head, want string }{
		{"whole", text, "cpu"},
		{"cuda, in a plan that does not verify", cuda, plan.CUDA},
		{"head", cuda[:target+len("\ntarget  cuda ")], plan.CUDA},
		{"before the target", cuda[:target+1], ""},
		{"no backend", text[:target] + "\ntarget\n", ""},
		{"a word that begins like it", text[:target] + "\ntargets cuda\n", ""},
		{"another file", "# target\ntarget cuda\n", ""},
		{"empty", "", ""},
	} {
		if got := plan.HeadBackend([]byte(c.head)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestFallbackSteps finds the reference kernels of all programs, in order, as many as the summary counts.
func TestFallbackSteps(t *testing.T) {
	p := plantest.Plan(2)
	if got := plan.FallbackSteps(p); got != nil {
		t.Fatalf("found fallbacks in a plan without: %v", got)
	}
	var want []*plan.Step
	for i := range p.Programs {
		waves := p.Programs[i].Waves
		last := waves[len(waves)-1].Steps
		for _, st := range []*plan.Step{&waves[0].Steps[0], &last[len(last)-1]} {
			st.Kernel = "ref.add"
			want = append(want, st)
		}
	}
	if got := plan.FallbackSteps(p); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if n := plan.Summarize(p).Fallbacks; n != len(want) {
		t.Errorf("the summary counts %d fallbacks, want %d", n, len(want))
	}
}
