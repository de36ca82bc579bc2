package compare

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/lower"
)

// demoInput compiles the embedded model.
func demoInput(t *testing.T, o lower.Options) Input {
	t.Helper()
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	res, err := lower.Compile(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return Input{Plan: res.Plan, Model: f, Options: exec.Options{Threads: 1}}
}

// opened starts a plan of the embedded model, until the test ends.
func opened(t *testing.T, letter string, o lower.Options) *PlanOperand {
	t.Helper()
	p, err := OpenPlan(demoInput(t, o), Description{Letter: letter, Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

var someIDs = []int32{7, 300, 41, 9, 1000, 3, 3, 12}

// TestCompare compares as a program that imports the package does.
func TestCompare(t *testing.T) {
	exact := opened(t, "A", lower.Options{Precision: "exact", Ctx: 64})
	same, fast := opened(t, "B", lower.Options{Precision: "exact", Ctx: 64}), opened(t, "B", lower.Options{Precision: "fast", Ctx: 64})
	var seen []string
	c, err := Compare(t.Context(), exact, same, someIDs, func(p Progress) { seen = append(seen, p.String()) })
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxKL != 0 || c.SameTop != len(someIDs) || len(c.Layers) != 4 || c.CheckKL(0) != nil || c.CheckD(0) != nil {
		t.Errorf("a plan and the same: %+v, want no difference", c)
	}
	if len(seen) == 0 || seen[0] != "decode: 0 of 8 tokens" {
		t.Errorf("progress was %q", seen)
	}
	if c, err = Compare(t.Context(), exact, fast, someIDs, nil); err != nil || !(c.MeanKL > 0) {
		t.Fatalf("exact and fast: %+v, %v, want a difference", c, err)
	}
	for _, err := range []error{c.CheckKL(0), c.CheckD(1e-9)} {
		if err == nil || !strings.HasPrefix(err.Error(), "B demo: ") {
			t.Errorf("a bound that does not hold: %v", err)
		}
	}
	b, err := Bisect(t.Context(), exact, fast, someIDs, 1e-9, nil)
	if err != nil || b.First == nil || b.First.Layer > 0 || b.Check() == nil {
		t.Errorf("bisection: %+v, %v, want a difference in the first layer", b, err)
	}
}

// Wrong operands are refused before anything is computed. The errors name no flags.
func TestCompareRefuses(t *testing.T) {
	a, b := opened(t, "A", lower.Options{Ctx: 16}), opened(t, "B", lower.Options{Ctx: 64})
	for _, c := range []struct {
		ids   []int32
		words string
	}{
		{nil, "found no tokens"},
		{make([]int32, 17), "A demo: found 17 tokens, expected at most 16"},
		{[]int32{99999}, "A demo: token id 99999"},
	} {
		if _, err := Compare(t.Context(), a, b, c.ids, nil); err == nil || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "--") {
			t.Errorf("%d tokens: %v, want %q", len(c.ids), err, c.words)
		}
		if _, err := Bisect(t.Context(), a, b, c.ids, 0, nil); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("bisect of %d tokens: %v, want %q", len(c.ids), err, c.words)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compare(ctx, a, b, someIDs, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if _, err := OpenFolder(Description{Letter: "B", Name: t.TempDir()}); err == nil || !strings.Contains(err.Error(), TokensFile) {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestDump checks that a dump's folder holds the plan's values bit by bit, and is refused for other
// tokens.
func TestDump(t *testing.T) {
	o := lower.Options{Precision: "exact", Ctx: 64, Ubatch: 3, Outputs: []string{"blk.*.out"}}
	in := demoInput(t, o)
	d, err := NewDump(in.Plan)
	if err != nil {
		t.Fatal(err)
	}
	e, err := exec.Open(in.Plan, in.Model, in.Options)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := d.Evaluate(t.Context(), e, someIDs, nil); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, file := range d.Files() {
		f, err := os.Create(filepath.Join(dir, file.Name))
		if err == nil {
			err = errors.Join(file.Write(f), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := d.CheckFolder(dir); err != nil {
		t.Errorf("its own folder: %v", err)
	}
	folder, err := OpenFolder(Description{Letter: "B", Name: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	a := opened(t, "A", lower.Options{Precision: "exact", Ctx: 64})
	c, err := Compare(t.Context(), a, folder, folder.IDs(), nil)
	if err != nil || c.MaxKL != 0 || c.CheckD(0) != nil || len(c.Layers) != 4 || c.Tokens != len(someIDs) {
		t.Errorf("the plan and its dump: %+v, %v, want no difference", c, err)
	}
	if _, err := Compare(t.Context(), a, folder, someIDs[1:], nil); err == nil || !strings.Contains(err.Error(), "its token ids are [7 300 ") {
		t.Errorf("other tokens: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "layer_04.npy"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := d.CheckFolder(dir); err == nil || !strings.Contains(err.Error(), "layer_04.npy") {
		t.Errorf("a folder with another layer: %v", err)
	}
	if _, err := NewDump(demoInput(t, lower.Options{}).Plan); !errors.As(err, new(*OutputError)) {
		t.Errorf("a plan without residual streams: %v", err)
	}
}

// TestSummary describes a dump that is written by hand: two rows of each value, of which the last counts.
func TestSummary(t *testing.T) {
	value := func(last ...float32) *DumpedValue {
		return &DumpedValue{rows: 2, data: append(make([]float32, len(last)), last...)}
	}
	d := &Dump{
		Logits: value(1, 5, -2, 5),
		Layers: []*DumpedValue{value(3, -4, 0), value(0, 0, 0), value(2e38, 2e38, 2e38)},
	}
	want := &DumpSummary{
		Layers: []LayerSummary{{5, []float32{3, -4}}, {0, []float32{0, 0}}, {math.Sqrt(3) * float64(float32(2e38)), []float32{2e38, 2e38}}},
		Top:    []TokenLogit{{1, 5}, {3, 5}},
	}
	got := d.Summary(2)
	if norm := got.Layers[2].Norm; math.Abs(norm/want.Layers[2].Norm-1) > 1e-15 { // float64 rounds three times
		t.Errorf("norm %v, want %v", norm, want.Layers[2].Norm)
	}
	got.Layers[2].Norm = want.Layers[2].Norm
	if !reflect.DeepEqual(got, want) {
		t.Errorf("found %+v, want %+v", got, want)
	}
	if all := d.Summary(100); len(all.Layers[0].First) != 3 || len(all.Top) != 4 {
		t.Errorf("of fewer than 100 elements: %+v", all)
	}
	d.Logits = value(float32(math.NaN()), 1)
	if top := d.Summary(1).Top; len(top) != 1 || top[0] != (TokenLogit{1, 1}) {
		t.Errorf("next to NaN the most likely token is %+v", top)
	}
}

// TestCoverage: schedules run every program that the tokens allow, each step within the program's
// bounds, and every other program has a reason. The expected program of a step is that of
// plan.ProgramFor, which the executor follows.
func TestCoverage(t *testing.T) {
	p := opened(t, "", lower.Options{Ctx: 256})
	for _, tokens := range []int{1, 2, 31, 32, 33, 64, 65, 127, 200} {
		schedules, skipped := coverage(tokens, 0, p)
		var ran []string
		for _, s := range schedules {
			from := 0
			for _, to := range s.ends {
				g := p.plan.ProgramFor(plan.Workload{T: int64(to - from), R: 1, Seqs: 1, Pos: int64(from)})
				if g.Name != s.program || to-from > StepTokens {
					t.Errorf("%d tokens, schedule of %s: a step of %d tokens runs %s", tokens, s.program, to-from, g.Name)
				}
				from = to
			}
			if from != tokens {
				t.Errorf("%d tokens, schedule of %s: evaluates %d", tokens, s.program, from)
			}
			ran = append(ran, s.program)
		}
		for _, s := range skipped {
			if s.Why == "" {
				t.Errorf("%d tokens: %s is skipped without a reason", tokens, s.Program)
			}
			ran = append(ran, s.Program)
		}
		var all []string
		for i := range p.plan.Programs {
			all = append(all, p.plan.Programs[i].Name)
		}
		slices.Sort(ran)
		slices.Sort(all)
		if !slices.Equal(ran, all) {
			t.Errorf("%d tokens: programs %q ran or were skipped, expected %q", tokens, ran, all)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, x := range []float64{0, 1.5, math.Inf(1)} {
		text, err := Number(x).MarshalJSON()
		var back Number
		if err == nil {
			err = back.UnmarshalJSON(text)
		}
		if err != nil || float64(back) != x {
			t.Errorf("%v is %s, and read as %v: %v", x, text, back, err)
		}
	}
	if text, err := Number(math.NaN()).MarshalJSON(); err != nil || string(text) != "null" {
		t.Errorf("NaN is %s, %v", text, err)
	}
}
