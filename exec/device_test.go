package exec_test

import (
	"math"
	"slices"
	"testing"

	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/cuda/virtual"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/lower"
)

// onBoth opens the embedded model on the processor and on the virtual device, with the options of both.
func onBoth(t *testing.T, o lower.Options, run exec.Options) (processor, device *exec.Engine) {
	t.Helper()
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	open := func(target string, run exec.Options) *exec.Engine {
		o.Target = target
		res, err := lower.Compile(m, o)
		if err != nil {
			t.Fatal(err)
		}
		if s := plan.Summarise(res.Plan); target == plan.CUDA && o.Passes == "" && s.Fallbacks != 0 {
			t.Fatalf("%d fallbacks, expected none", s.Fallbacks)
		}
		e, err := exec.Open(res.Plan, f, run)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	processor = open("cpu", exec.Options{Poison: true})
	run.Poison, run.Driver = true, virtual.New(virtual.Config{})
	return processor, open(plan.CUDA, run)
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// TestDeviceDecodes continues a prompt on the virtual device as on the processor: the logits are
// near, and in exact the tokens are the same. The prompt is a whole chunk and some tokens more.
func TestDeviceDecodes(t *testing.T) {
	var prompt []int32
	for i := range int32(77) {
		prompt = append(prompt, (i*i*37+5)%1500)
	}
	tokens := map[string]int{"exact": 33, "fast": 4}
	for precision, bound := range map[string]float64{"exact": 1e-4, "fast": 2e-2} {
		t.Run(precision, func(t *testing.T) {
			a, b := onBoth(t, lower.Options{Precision: precision, Ctx: 128}, exec.Options{})
			sa, err := exec.NewSession(a)
			if err != nil {
				t.Fatal(err)
			}
			sb, err := exec.NewSession(b)
			if err != nil {
				t.Fatal(err)
			}
			ids, worst := prompt, 0.0
			for range tokens[precision] {
				want, err := sa.Feed(ids)
				if err != nil {
					t.Fatal(err)
				}
				got, err := sb.Feed(ids)
				if err != nil {
					t.Fatal(err)
				}
				for i := range want {
					worst = max(worst, math.Abs(float64(want[i]-got[i])))
				}
				next := argmax(want)
				if precision == "exact" && argmax(got) != next {
					t.Fatalf("position %d: token %d, expected %d", sa.Pos(), argmax(got), next)
				}
				ids = []int32{next}
			}
			t.Logf("worst difference of a logit: %v", worst)
			if !(worst <= bound) {
				t.Errorf("a logit differs by %v, expected at most %v", worst, bound)
			}
		})
	}
}

// TestDeviceOnHost runs a plan without passes, whose steps are on the host, and sees the logits of the
// processor.
func TestDeviceOnHost(t *testing.T) {
	a, b := onBoth(t, lower.Options{Precision: "exact", Ctx: 32, Passes: "none"}, exec.Options{})
	var logits [2][]float32
	for i, e := range []*exec.Engine{a, b} {
		s, err := exec.NewSession(e)
		if err != nil {
			t.Fatal(err)
		}
		row, err := s.Feed([]int32{5, 17, 301})
		if err != nil {
			t.Fatal(err)
		}
		logits[i] = slices.Clone(row)
	}
	if !slices.Equal(logits[0], logits[1]) {
		t.Error("the same steps on the host gave other logits")
	}
}
