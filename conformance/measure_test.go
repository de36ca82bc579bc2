package conformance

import (
	"fmt"
	"math"

	"pesti/conformance/metrics"
)

// The bounds for precision exact. CONFORMANCE.md explains them.
const (
	tolerance      = metrics.Tolerance // of d, at every position of every layer
	logitTolerance = 1e-3              // of |Δlogit|
)

// A verdict is the result of comparing a pass with the oracle.
type verdict struct {
	layers   []float64 // worst d of each layer
	worst    float64   // largest d relative to the allowed d: ≤ 1 passes
	where    string
	logits   float64 // worst |Δlogit|
	argmaxes int     // positions whose argmax differs although the oracle's margin is above the tolerance
}

func (v verdict) passes() bool {
	return v.worst <= 1 && v.logits <= logitTolerance && v.argmaxes == 0
}

func (v verdict) String() string {
	return fmt.Sprintf("worst d %.1e of the allowed d, %s; |Δlogit| %.1e; %d argmaxes differ", v.worst, v.where, v.logits, v.argmaxes)
}

// compare compares one of our passes with the oracle's.
func compare(ours *ourPass, oracle *oraclePass) verdict {
	var v verdict
	for l := range oracle.layers {
		worst := 0.0
		for t := range oracle.layers[l] {
			d := metrics.Layer(ours.layers[l][t], oracle.layers[l][t], len(oracle.layers[l][t])).D
			worst = max(worst, d)
			if r := d / metrics.Allowed(oracle.floor.Layers[l]); r > v.worst {
				v.worst, v.where = r, fmt.Sprintf("layer %d position %d (d %.1e)", l, t, d)
			}
		}
		v.layers = append(v.layers, worst)
	}
	for t, want := range oracle.logits {
		got := ours.logits[t]
		for i := range want {
			if d := math.Abs(float64(got[i]) - want[i]); !(d <= v.logits) {
				v.logits = d
			}
		}
		best, margin := metrics.Top(want)
		mine, _ := metrics.Top(got)
		if mine != best && margin > logitTolerance {
			v.argmaxes++
		}
	}
	return v
}
