package exec_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"pesti/exec"
	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/lower"
)

// ordersOf returns the orders that there are for the products of a plan, by type of the weights.
func ordersOf(t *testing.T, p *plan.Plan) map[string][]kernel.ReadOrder {
	t.Helper()
	sets, err := isa.UpTo(p.Target.ISA)
	if err != nil {
		t.Fatal(err)
	}
	types, all := map[string]string{}, map[string][]kernel.ReadOrder{}
	for i := range p.Weights {
		types[p.Weights[i].Name] = p.Weights[i].Type
	}
	for _, st := range p.Steps() {
		for _, a := range st.Args {
			if r := kernel.ReadOrders(a.Kernel, sets); r != nil {
				all[types[a.Weight]] = r
			}
		}
	}
	return all
}

// Whatever an engine measures and chooses, and whatever it is told to use, the bits are the same.
func TestTune(t *testing.T) {
	m := load(t, configs["k-quant"])
	p := compile(t, m, lower.Options{Precision: "fast"}).Plan
	choices := ordersOf(t, p)
	want := func() []float32 {
		s := session(t, open(t, m, p, 2))
		feed(t, s, prompt(5))
		return feed(t, s, []int32{3})
	}()

	for _, gain := range []float64{0, 1e9} { // whichever is fastest, and the default
		e := open(t, m, p, 2)
		s := session(t, e)
		feed(t, s, prompt(5))
		tuned, err := e.TuneAll(context.Background(), time.Minute, gain)
		if err != nil {
			t.Fatal(err)
		}
		if len(choices) == 0 && len(tuned) != 0 || len(choices) > 0 && len(tuned) == 0 {
			t.Fatalf("%+v were tuned, where there are choices for %v", tuned, choices)
		}
		for _, r := range tuned {
			orders := choices[r.Type]
			if len(r.Tried) != len(orders) || r.Bytes <= 0 {
				t.Fatalf("%+v, expected measurements of %v", r, orders)
			}
			best := r.Tried[0]
			for i, tried := range r.Tried {
				if tried.Order != orders[i].String() || !(tried.GBs > 0) || !(tried.GMACs > 0) {
					t.Errorf("%s: tried %+v, expected a rate of %v", r.Type, tried, orders[i])
				}
				if gain == 0 && tried.GBs > best.GBs {
					best = tried
				}
			}
			if r.Order != best.Order && r.Order != r.Tried[0].Order {
				t.Errorf("%+v chose %s, expected %s", r, r.Order, best.Order)
			}
		}
		if e.Logits(0) != nil {
			t.Error("there are logits after products that overwrote them")
		}
		if got := feed(t, s, []int32{3}); !slices.Equal(got, want) {
			t.Errorf("gain of %g: other logits than without tuning", gain)
		}
	}

	for _, r := range []kernel.ReadOrder{kernel.OneStream, kernel.OneStreamAhead, kernel.OneStreamNTA, kernel.FourStreams, kernel.FourStreamsAhead} {
		byType := map[string]string{"q4_k": r.String(), "Q5_K": r.String(), "q6_k": r.String()}
		e, err := exec.Open(p, m.File, exec.Options{Threads: 2, ReadOrders: byType, Tune: true})
		if err != nil {
			t.Fatal(err)
		}
		s := session(t, e)
		feed(t, s, prompt(5))
		if got := feed(t, s, []int32{3}); !slices.Equal(got, want) {
			t.Errorf("%v: other logits than by default", r)
		}
		if e.Tuned() != nil {
			t.Errorf("%+v were tuned, though all are given", e.Tuned())
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Without time, and with few weights, every type keeps its default, and nothing counts as measured.
func TestTuneLimits(t *testing.T) {
	m := load(t, configs["k-quant"])
	p := compile(t, m, lower.Options{Precision: "fast"}).Plan
	e, err := exec.Open(p, m.File, exec.Options{Threads: 2, Tune: true})
	if err != nil {
		t.Fatal(err)
	}
	s := session(t, e)
	feed(t, s, prompt(5))
	feed(t, s, []int32{3})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	late, err := e.TuneAll(context.Background(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	canceled, err := e.TuneAll(ended, time.Minute, 0)
	if err != nil {
		t.Fatal(err)
	}
	choices := ordersOf(t, p)
	for name, tuned := range map[string][]exec.Tuned{"by itself": e.Tuned(), "without time": late, "canceled": canceled} {
		if (len(tuned) == 0) != (len(choices) == 0) {
			t.Errorf("%s: %+v, where there are choices for %v", name, tuned, choices)
		}
		for _, r := range tuned {
			if len(r.Tried) > 0 || r.Order != choices[r.Type][0].String() {
				t.Errorf("%s: %+v, expected the default, not measured", name, r)
			}
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Tune(context.Background(), time.Second); err == nil {
		t.Error("a closed engine was tuned")
	}
	for kind, order := range map[string]string{"q4_x": "one-stream", "q4_k": "two-streams"} {
		_, err := exec.Open(p, m.File, exec.Options{ReadOrders: map[string]string{kind: order}})
		if err == nil || !strings.Contains(err.Error(), "q4_x") && !strings.Contains(err.Error(), `"two-streams", expected one of "one-stream"`) {
			t.Errorf("%s of %s: error %v", order, kind, err)
		}
	}
}

// The default is left for an order that is 5 % faster by the median and by the fastest sample.
func TestFastestOrder(t *testing.T) {
	steady := func(rate float64) []float64 { return []float64{rate, rate, rate, rate, rate} }
	for _, c := range []struct {
		name  string
		rates [][]float64
		want  int
	}{
		{"equal", [][]float64{steady(100), steady(100)}, 0},
		{"too little", [][]float64{steady(100), steady(104.9)}, 0},
		{"enough", [][]float64{steady(100), steady(105)}, 1},
		{"slower", [][]float64{steady(100), steady(50)}, 0},
		{"best of three", [][]float64{steady(100), steady(110), steady(130), steady(120)}, 2},
		{"by the median alone", [][]float64{{40, 100, 100, 100, 128}, {130, 130, 130, 130, 130}}, 0},
		{"by the fastest alone", [][]float64{steady(100), {99, 99, 99, 200, 200}}, 0},
		{"one slow sample", [][]float64{steady(100), {1, 120, 120, 120, 120}}, 1},
		{"one sample each", [][]float64{{100}, {106}}, 1},
		{"two samples each", [][]float64{{90, 100}, {1, 106}}, 1},
	} {
		if got := exec.Fastest(c.rates, 1.05); got != c.want {
			t.Errorf("%s: order %d of %v, expected %d", c.name, got, c.rates, c.want)
		}
	}
}

// Without a model, every type with a choice of order is measured, in the order of the layouts.
func TestTuneMachine(t *testing.T) {
	for _, set := range exec.BuiltISAs() {
		sets, err := isa.UpTo(set)
		if err != nil { // this machine lacks it
			if _, err := exec.TuneMachine(context.Background(), set, 1, time.Second); err == nil {
				t.Errorf("%s: measured without it", set)
			}
			continue
		}
		tuned, err := exec.TuneMachine(context.Background(), set, 3, 0)
		if err != nil {
			t.Fatalf("%s: %v", set, err)
		}
		types := map[string]bool{}
		for _, l := range kernel.Layouts() {
			kind := strings.ToLower(l.Type.String())
			if kernel.ReadOrders("gemv."+kind+".panel16.q8x2", sets) != nil {
				types[kind] = true
			}
		}
		for _, r := range tuned {
			if !types[r.Type] || r.Bytes < 32<<20 || len(r.Tried) > 0 {
				t.Errorf("%s, without time: %+v", set, r)
			}
		}
		if len(tuned) != len(types) {
			t.Errorf("%s: %d types were tuned, expected %d", set, len(tuned), len(types))
		}
		if len(types) == 0 {
			continue
		}
		tuned, err = exec.TuneMachine(context.Background(), set, 2, time.Minute)
		if err != nil || len(tuned) != len(types) {
			t.Fatalf("%s: %+v, %v", set, tuned, err)
		}
		for _, r := range tuned {
			if orders := kernel.ReadOrders("gemv."+r.Type+".panel16.q8x2", sets); len(r.Tried) != len(orders) || len(orders) < 2 {
				t.Errorf("%s: %+v, expected measurements of %v", set, r, orders)
			}
		}
	}
}
