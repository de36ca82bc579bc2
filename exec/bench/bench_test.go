package bench

import (
	"context"
	"errors"
	"math"
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

// demoEngine opens the embedded model.
func demoEngine(t *testing.T, o lower.Options, run exec.Options) *exec.Engine {
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
	e, err := exec.Open(res.Plan, f, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func demoSession(t *testing.T) *exec.Session {
	t.Helper()
	s, err := exec.NewSession(demoEngine(t, lower.Options{Precision: "fast"}, exec.Options{Threads: 1}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRun measures as a program that imports the package does: every test has its samples, paired ones a
// ratio, and the profile is about the measured runs alone.
func TestRun(t *testing.T) {
	e := demoEngine(t, lower.Options{Precision: "fast", Sequences: 2, Rows: 5}, exec.Options{Threads: 1, Profile: true})
	tests, err := Tests([]int{8, 0}, []int{3}, []int{0, 5})
	if err != nil {
		t.Fatal(err)
	}
	tests = AddPaired(tests, 4, 0, 2)
	runs := 0
	b, err := New(e, Options{Repeat: 2, Progress: func(string, int, int) { runs++ }})
	if err != nil {
		t.Fatal(err)
	}
	done, stopped, err := b.Run(t.Context(), tests)
	if err != nil || stopped != "" || len(done) != 8 || runs != 8*3 {
		t.Fatalf("%d tests in %d runs, stopped in %q: %v", len(done), runs, stopped, err)
	}
	for _, x := range done {
		if len(x.SamplesTS) != 2 || x.AvgTS <= 0 || x.isPaired() != (x.Paired != nil) || x.Paired != nil && x.Paired.Ratio <= 0 {
			t.Errorf("%s: %+v", x.Name, x)
		}
	}
	if p := e.Profile(); len(p.Programs) == 0 || p.Programs[0].Runs == 0 {
		t.Errorf("the profile is %+v", p)
	}

	// An interrupt returns the tests that have a result, and names the one that has none.
	ctx, cancel := context.WithCancel(t.Context())
	b.o.Progress = func(test string, run, of int) {
		if test == "tg3" {
			cancel()
		}
	}
	done, stopped, err = b.Run(ctx, tests)
	if !errors.Is(err, context.Canceled) || stopped != "tg3" || len(done) != 1 || done[0].Name != "pp8" || len(done[0].SamplesTS) != 2 {
		t.Errorf("interrupted: %+v, stopped in %q, %v", done, stopped, err)
	}
	if _, err := Tests([]int{3}, nil, []int{-1}); err == nil || !strings.Contains(err.Error(), "pp3 @ d-1") {
		t.Errorf("a negative depth: %v", err)
	}
}

// A test begins at its own depth, whichever test ran before.
func TestSeek(t *testing.T) {
	session := demoSession(t)
	ids := make([]int32, 300)
	for i := range ids {
		ids[i] = int32(i + 5)
	}
	logits := func(depth int) []float32 {
		if err := seek(t.Context(), session, ids[:depth]); err != nil {
			t.Fatal(err)
		}
		if session.Pos() != depth {
			t.Fatalf("at position %d, want %d", session.Pos(), depth)
		}
		row, err := session.Feed(t.Context(), ids[depth:depth+1])
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(row)
	}
	want := map[int][]float32{}
	for _, depth := range []int{0, 1, 40, 299} {
		session.Reset()
		want[depth] = logits(depth)
	}
	for _, depth := range []int{299, 0, 40, 40, 1, 299, 40} { // forwards, back and in place
		if !slices.Equal(logits(depth), want[depth]) {
			t.Errorf("at depth %d the logits are not those of a fresh session", depth)
		}
	}
}

func TestMeanAndDeviation(t *testing.T) {
	for _, c := range []struct {
		x         []float64
		mean, dev float64
	}{
		{[]float64{3}, 3, 0},
		{[]float64{2, 4}, 3, math.Sqrt2},
		{[]float64{1, 2, 3, 4, 5}, 3, math.Sqrt(2.5)},
	} {
		if mean, dev := meanAndDeviation(c.x); math.Abs(mean-c.mean) > 1e-12 || math.Abs(dev-c.dev) > 1e-12 {
			t.Errorf("meanAndDeviation(%v) = %v, %v, want %v, %v", c.x, mean, dev, c.mean, c.dev)
		}
	}
}

func TestTestLoads(t *testing.T) {
	for _, c := range []struct {
		test Test
		want []plan.Workload
	}{
		{Test{NPrompt: 5}, []plan.Workload{{T: 5, R: 1, Seqs: 1}}},
		{Test{NPrompt: 20, NDepth: 3}, []plan.Workload{{T: 8, Seqs: 1, Pos: 3}, {T: 8, Seqs: 1, Pos: 11}, {T: 4, R: 1, Seqs: 1, Pos: 19}}},
		{Test{NGen: 2, NDepth: 7}, []plan.Workload{{T: 1, R: 1, Seqs: 1, Pos: 7}, {T: 1, R: 1, Seqs: 1, Pos: 8}}},
	} {
		got := testLoads(&c.test, &plan.Plan{Target: plan.Target{Ubatch: 8}})
		if len(got) != len(c.want) {
			t.Fatalf("%+v has loads %v, want %v", c.test, got, c.want)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%+v: load %d is %+v, want %+v", c.test, i, got[i], c.want[i])
			}
		}
	}
}
