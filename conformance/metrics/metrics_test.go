package metrics

import (
	"math"
	"testing"
)

var (
	inf = math.Inf(1)
	nan = math.NaN()
)

func same(got, want float64) bool {
	return got == want || math.Abs(got-want) <= 1e-12 || math.IsNaN(got) && math.IsNaN(want)
}

func TestLayer(t *testing.T) {
	for _, c := range []struct {
		got  []float32
		want []float64
		cols int
		d    Deviation
	}{
		{nil, nil, 3, Deviation{}},
		{[]float32{7}, []float64{8}, 1, Deviation{1.0 / 16, 0, 0}},
		{[]float32{1, 2, 3}, []float64{1, 2, 3}, 3, Deviation{}},
		{[]float32{1, 2, 4}, []float64{1, 2, 3}, 3, Deviation{0.2, 0, 2}},          // 1 / (3 + 2)
		{[]float32{1, 0.5, 3, 5}, []float64{1, 0, 3, 5}, 4, Deviation{0.25, 0, 1}}, // 0.5 / (0 + 2)
		{[]float32{-1, 2, 3}, []float64{1, 2, 3}, 3, Deviation{2.0 / 3, 0, 0}},
		// Each row has its own median: in the second 1 / (100 + 100), not 1 / (100 + 2).
		{[]float32{1, 2, 3, 100, 100, 101}, []float64{1, 2, 3, 100, 100, 100}, 3, Deviation{1.0 / 200, 1, 2}},
		{[]float32{0, 1}, []float64{0, 0}, 2, Deviation{inf, 0, 1}},
		{[]float32{1, 1, 1, float32(nan)}, []float64{1, 1, 1, 1}, 2, Deviation{inf, 1, 1}},
		{[]float32{1, 1}, []float64{nan, 1}, 2, Deviation{inf, 0, 0}},
		{[]float32{float32(inf), 1}, []float64{1, 1}, 2, Deviation{inf, 0, 0}},
		// A masked score counts if only one side has it. If both have it, the median is over the others.
		{[]float32{float32(inf), 1}, []float64{-inf, 1}, 2, Deviation{inf, 0, 0}},
		{[]float32{float32(-inf), float32(-inf)}, []float64{-inf, -inf}, 2, Deviation{}},
		{[]float32{float32(-inf), float32(-inf), float32(-inf), 1, 4}, []float64{-inf, -inf, -inf, 1, 3}, 5, Deviation{0.2, 0, 4}}, // 1 / (3 + 2)
		{[]float32{float32(nan)}, []float64{nan}, 1, Deviation{inf, 0, 0}},
	} {
		if got := Layer(c.got, c.want, c.cols); !same(got.D, c.d.D) || got.Row != c.d.Row || got.Dim != c.d.Dim {
			t.Errorf("Layer(%v, %v, %d) = %v, want %v", c.got, c.want, c.cols, got, c.d)
		}
	}
}

func TestFirst(t *testing.T) {
	got, want := []float32{1, 2, 3.001, 1, 2, 4}, []float32{1, 2, 3, 1, 2, 3}
	for _, c := range []struct {
		bound    float64
		row, dim int
		found    bool
	}{
		{0, 0, 2, true},
		{1e-2, 1, 2, true},
		{0.2, 0, 0, false}, // equal to the bound is not above it
	} {
		d, found := First(got, want, 3, c.bound)
		if found != c.found || d.Row != c.row || d.Dim != c.dim || found && !(d.D > c.bound) {
			t.Errorf("bound %v: %+v, %t, want row %d dim %d, %t", c.bound, d, found, c.row, c.dim, c.found)
		}
	}
	if _, found := First(want, want, 3, 0); found {
		t.Error("what is equal differs")
	}
}

// logs returns logits for the given probabilities. They are shifted, because only differences count.
func logs(shift float64, p ...float64) []float64 {
	x := make([]float64, len(p))
	for i := range p {
		x[i] = math.Log(p[i]) + shift
	}
	return x
}

func TestKL(t *testing.T) {
	for _, c := range []struct {
		p, q []float64
		want float64
	}{
		{logs(0, 0.5, 0.5), logs(0, 0.5, 0.5), 0},
		{logs(3, 0.5, 0.5), logs(-800, 0.5, 0.5), 0},
		// By hand: 0.75 ln(0.75/0.5) + 0.25 ln(0.25/0.5), and in the other direction.
		{logs(0, 0.75, 0.25), logs(5, 0.5, 0.5), 0.75*math.Log(1.5) + 0.25*math.Log(0.5)},
		{logs(0, 0.5, 0.5), logs(0, 0.75, 0.25), 0.5*math.Log(0.5/0.75) + 0.5*math.Log(0.5/0.25)},
		{logs(1e4, 1), logs(0, 1), 0},
		{logs(0, 1, 0), logs(0, 0.5, 0.5), math.Log(2)}, // p excludes a token
		{logs(0, 0.5, 0.5), logs(0, 1, 0), inf},
		{[]float64{-inf, -inf}, logs(0, 0.5, 0.5), nan},
		{[]float64{nan, 1}, []float64{1, 1}, nan},
		{[]float64{1, 1}, []float64{1, nan}, nan},
		{[]float64{inf, 1}, []float64{1, 1}, nan},
		{nil, nil, nan},
	} {
		if got := KL(c.p, c.q); !same(got, c.want) {
			t.Errorf("KL(%v, %v) = %v, want %v", c.p, c.q, got, c.want)
		}
	}
}

func TestTop(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		best   int
		margin float64
	}{
		{[]float32{-3}, 0, inf},
		{[]float32{1, 4, 2}, 1, 2},
		{[]float32{5, 1, 5}, 0, 0},
		{[]float32{-2, -1}, 1, 1},
	} {
		if best, margin := Top(c.logits); best != c.best || margin != c.margin {
			t.Errorf("Top(%v) = %d, %v, want %d, %v", c.logits, best, margin, c.best, c.margin)
		}
	}
}

func TestLogits(t *testing.T) {
	var l Logits
	if l.MeanKL() != 0 || l.Top1() != 1 {
		t.Errorf("of no positions: mean %v, top-1 %v", l.MeanKL(), l.Top1())
	}
	even, bent := []float32{0, 0}, []float32{0, float32(math.Log(3))} // ½ ½ and ¼ ¾
	l.Add(even, even)
	l.Add(even, bent)
	l.Add(bent, bent)
	kl := 0.5*math.Log(0.5/0.25) + 0.5*math.Log(0.5/0.75)
	if d := l.MeanKL() - kl/3; math.Abs(d) > 1e-7 || math.Abs(l.MaxKL-kl) > 1e-7 || l.Worst != 1 || l.Positions != 3 || l.SameTop != 2 {
		t.Errorf("%+v, want a mean of %v, the worst %v at 1, 2 of 3 the same", l, kl/3, kl)
	}
	l.Add(even, []float32{0, float32(nan)})
	if l.MaxKL != inf || l.MeanKL() != inf || l.Worst != 3 {
		t.Errorf("with NaN: %+v, want it infinite at 3", l)
	}
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct{ floor, want float64 }{
		{0, 1e-4}, {3e-5, 1e-4}, {3.3e-5, 1e-4}, {5e-5, 1.5e-4}, {0.1, 0.3},
		{math.Inf(1), 1e-4}, {math.NaN(), 1e-4},
	} {
		if got := Allowed(c.floor); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("a floor of %v allows %v, want %v", c.floor, got, c.want)
		}
	}
}
