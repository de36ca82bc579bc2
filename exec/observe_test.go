package exec_test

import (
	"math"
	"slices"
	"testing"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/lower"
)

// TestObserve checks that observing does not change a bit, that each step is observed once and in order,
// and that the observed values are those of the plan's outputs.
func TestObserve(t *testing.T) {
	for name, c := range configs {
		for _, o := range []lower.Options{
			{Precision: "exact"}, {Precision: "fast", Activations: "q8x2"}, {Precision: "fast", Activations: "mixed"}, {Precision: "exact", Passes: "none"},
		} {
			t.Run(name+"/"+o.Precision+o.Activations+o.Passes, func(t *testing.T) {
				m := load(t, c)
				o.Outputs, o.Ubatch = []string{"blk.1.*"}, 64
				p := compile(t, m, o).Plan
				seen := map[string][]float32{}
				var program *plan.Program
				var steps []int
				e, err := exec.Open(p, m.File, exec.Options{Threads: 2, Poison: true, Observe: func(v exec.Observation) {
					if v.Rows < 1 || len(v.Data) == 0 || len(v.Data)%v.Rows != 0 {
						t.Errorf("%s has %d elements in %d rows", v.Name, len(v.Data), v.Rows)
					}
					if !slices.ContainsFunc(v.Program.Waves[v.Wave].Steps, func(st plan.Step) bool { return st.ID == v.Step.ID }) {
						t.Errorf("%s: step %d is not in wave %d", v.Name, v.Step.ID, v.Wave)
					}
					program = v.Program
					steps = append(steps, v.Step.ID)
					seen[v.Name] = slices.Clone(v.Data)
				}})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				plain := open(t, m, p, 3)
				s, want := session(t, e), session(t, plain)
				for _, n := range []int{40, 7, 1} { // each program
					clear(seen)
					steps = nil
					if !slices.Equal(feed(t, s, prompt(n)), feed(t, want, prompt(n))) {
						t.Fatalf("%d tokens: the logits differ from those of an engine that nobody watches", n)
					}
					if !slices.IsSorted(steps) {
						t.Errorf("%d tokens: steps are seen in the order %v", n, steps)
					}
					for _, b := range p.Buffers {
						if b.Class != plan.IO || b.Format != "f32" {
							continue
						}
						v, err := plain.Value(b.Name)
						if err != nil {
							t.Fatal(err)
						}
						got, ok := seen[b.Name]
						if !ok {
							t.Errorf("%d tokens: %s is not seen", n, b.Name)
						} else if !slices.Equal(got, v.Data) {
							t.Errorf("%d tokens: %s is seen other than the plan hands it out", n, b.Name)
						}
					}
					for _, value := range []string{"blk.0.q", "blk.0.k", "blk.0.v"} { // mostly outputs of one step
						if len(seen[value]) == 0 {
							t.Errorf("%d tokens: %s is not seen", n, value)
						}
					}
					checkQuantized(t, program, p.Buffers, seen)
				}
			})
		}
	}
}

// checkQuantized compares the outputs of quantize steps with their inputs: the error is at most one step of
// 15 or 8 bits, relative to the largest of each 32 elements.
func checkQuantized(t *testing.T, g *plan.Program, shared []plan.Buffer, seen map[string][]float32) {
	t.Helper()
	steps := map[string]float64{"q8x2": 1. / 16256, "q8": 1. / 127} // relative to the largest element
	from := map[int]string{}                                        // name of the value in each buffer
	format := map[int]string{}
	for _, b := range slices.Concat(shared, g.Buffers) {
		format[b.ID] = b.Format
	}
	for _, w := range g.Waves {
		for _, st := range w.Steps {
			if st.Kernel == "quantize" && from[st.Args[0].Buffer] != "" {
				x, y := seen[from[st.Args[0].Buffer]], seen[st.Name]
				if len(x) != len(y) || len(x) == 0 {
					t.Errorf("%s has %d elements, of %d", st.Name, len(y), len(x))
					continue
				}
				for i := range x {
					block := x[i/32*32 : i/32*32+32]
					if bound := maxAbs(block) * steps[format[st.Args[len(st.Args)-1].Buffer]] * 0.51; !(math.Abs(float64(x[i]-y[i])) <= bound) {
						t.Errorf("%s[%d] is %g, quantized from %g, expected it within %g", st.Name, i, y[i], x[i], bound)
						break
					}
				}
			}
			from[st.Args[len(st.Args)-1].Buffer] = st.Name
		}
	}
}

func maxAbs(x []float32) float64 {
	most := 0.0
	for _, v := range x {
		most = max(most, math.Abs(float64(v)))
	}
	return most
}
