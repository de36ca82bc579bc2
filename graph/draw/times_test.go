package draw

import (
	"strings"
	"testing"

	"pesti/exec/plan/plantest"
)

// TestTimes draws a plan with the times of its steps. A folded box has the time of all its layers,
// and shares are of the program's time.
func TestTimes(t *testing.T) {
	p := plantest.Plan(3)
	g := &p.Programs[0]
	seconds := make([]float64, g.NumSteps())
	total := 0.0
	for i := range seconds {
		seconds[i] = float64(i) * 1e-3
		total += seconds[i]
	}
	options := Options{Layer: outside, Times: map[string][]float64{g.Name: seconds}}
	text, err := Plan(p, options)
	if err != nil {
		t.Fatal(err)
	}
	sum, boxes := 0.0, 0
	pic := &picture{}
	pic.addProgram(p, g)
	if err := pic.times(g, 0, options); err != nil {
		t.Fatal(err)
	}
	if pic, err = pic.finish(options); err != nil {
		t.Fatal(err)
	}
	for _, b := range pic.boxes {
		sum += b.share
		boxes++
	}
	if sum < 1-1e-9 || sum > 1+1e-9 || boxes >= len(seconds) {
		t.Errorf("%d boxes of %d steps have %v of the time, expected all of it in fewer", boxes, len(seconds), sum)
	}
	for _, b := range pic.boxes {
		if b.title == "ffn_out" { // one box for three layers, whose steps are 8 apart
			var want float64
			for i := range g.Waves {
				for _, st := range g.Waves[i].Steps {
					if strings.HasSuffix(st.Name, ".ffn_out") {
						want += seconds[st.ID]
					}
				}
			}
			if d := b.seconds - want; d > 1e-12 || d < -1e-12 {
				t.Errorf("ffn_out of all layers took %v s, want %v", b.seconds, want)
			}
		}
	}
	if plain, err := Plan(p, Options{Layer: outside}); err != nil || strings.Contains(plain, "of the time") || !strings.Contains(text, "of the time") {
		t.Errorf("times are told where there are none, or not where there are; %v", err)
	}

	for i := range seconds {
		seconds[i] = 0
	}
	if _, err := Plan(p, options); err != nil {
		t.Errorf("times of nothing: %v", err)
	}
	options.Program = "prefill"
	if _, err := Plan(p, options); err == nil || !strings.Contains(err.Error(), `program "prefill" has`) {
		t.Errorf("a program without times: error %v", err)
	}
}

// Each share has its own color.
func TestHeats(t *testing.T) {
	pic := &picture{boxes: []box{{share: 0.5}, {share: 0.2}, {share: 0.1999}, {share: 0.05}, {share: 0.02}, {share: 0.0101}, {share: 0.009}, {}}}
	pic.colorByTime()
	want := []int{0, 0, 1, 2, 3, 4, 5, 5}
	for i, b := range pic.boxes {
		if b.kind != timeStyles[want[i]].name || styleOf(b.kind).fill != timeStyles[want[i]].fill {
			t.Errorf("a share of %v is drawn as %q, want %q", b.share, b.kind, timeStyles[want[i]].name)
		}
	}
	if len(timeStyles) != len(leastShares) {
		t.Errorf("%d colors for %d shares", len(timeStyles), len(leastShares))
	}
}
