package compare

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"pesti/conformance/gorgoniaref"
	"pesti/conformance/metrics"
	"pesti/exec"
	"pesti/exec/plan"
)

// A Bound holds the largest allowed differences between a plan and gorgonia.
type Bound struct {
	D      Number `json:"d"`      // of a layer, at any position
	Logits Number `json:"logits"` // |Δ| of any logit, if no logit of its position exceeds largeLogit
	KL     Number `json:"kl"`     // mean divergence of the logits

	// Step bounds d of each value that a step stores from what gorgonia computes of the plan's values
	// before it. Zero means that steps are not compared.
	Step Number `json:"step,omitempty"`
}

// Bounds are the bounds of three kinds of plans. Exact is for plans that compute in float32 with a
// float32 cache; its bounds are CONFORMANCE.md's. OnePlane is for plans with activations in one
// plane of int8, and Fast for all others. Their bounds on d and logits are about four times the
// largest values of correct plans on three models and two texts (fast: d 0.06, logits 0.072; one
// plane: 3.2 and 2.6; all on gemma, which has few large dims), because both depend on the worst
// element alone. The KL divergence is a mean and detects an epsilon or a scale that is wrong
// everywhere: correct plans reach 2e-7 to 1e-5, with one plane 2e-4 to 8e-3. The bounds
// with one plane are so wide that steps are compared too, by the bound of Exact: rounding of activations
// and caches is not part of that difference.
var Bounds = struct{ Exact, Fast, OnePlane Bound }{
	Exact:    Bound{D: metrics.Tolerance, Logits: 1e-3, KL: 1e-4},
	Fast:     Bound{D: 0.25, Logits: 0.25, KL: 1e-4},
	OnePlane: Bound{D: 12, Logits: 10, KL: 2e-2, Step: metrics.Tolerance},
}

// boundOf returns the bound for a plan.
func boundOf(p *plan.Plan) Bound {
	if p.Target.Precision == "exact" && p.Target.KV == "f32" {
		return Bounds.Exact
	}
	for _, g := range p.Programs {
		if slices.ContainsFunc(g.Buffers, func(b plan.Buffer) bool { return b.Format == "q8" }) {
			return Bounds.OnePlane
		}
	}
	return Bounds.Fast
}

// largeLogit is far above the logits of usual models. Of such a logit, float32 sums keep an
// absolute accuracy of only about 1e-3, so the allowed difference grows with larger logits.
const largeLogit = 100

// allowed returns the allowed difference of the logits of a position. row has gorgonia's logits.
func (b *Bound) allowed(row []float64) float64 {
	largest := 0.0
	for _, x := range row {
		largest = max(largest, math.Abs(x)) // keeps a NaN
	}
	if times := largest / largeLogit; times > 1 && !math.IsInf(times, 1) {
		return float64(b.Logits) * times
	}
	return float64(b.Logits)
}

func (b Bound) String() string {
	text := fmt.Sprintf("d %g, logits %g, mean KL divergence %g", b.D, b.Logits, b.KL)
	if b.Step > 0 {
		text += fmt.Sprintf(", d of one step %g", b.Step)
	}
	return text
}

// A CheckReport holds the differences between a plan and gorgonia.
type CheckReport struct {
	Name      string         `json:"plan"`
	Precision string         `json:"precision"`
	KV        string         `json:"kv"`
	Tokens    int            `json:"tokens"`
	Programs  []string       `json:"programs"` // programs of the plan that ran
	Skipped   []Skipped      `json:"skipped"`
	Steps     []CheckedStep  `json:"steps,omitempty"` // of programs that compute the same, those of the first
	Layers    []CheckedLayer `json:"layers"`
	Logits    CheckedLogits  `json:"logits"`
	Bound     Bound          `json:"bound"`
	OK        bool           `json:"ok"`
}

// A CheckedLayer is the largest difference of a residual stream over all programs, with the allowed
// one.
type CheckedLayer struct {
	LayerDeviation
	Allowed Number `json:"allowed"`
	Floor   Number `json:"float32_d,omitempty"` // d of gorgonia in float32, if it was computed
}

// A CheckedLogits is the largest difference of the logits, with the number of positions where the
// most likely token differs.
type CheckedLogits struct {
	Delta    Number `json:"delta"`
	Allowed  Number `json:"allowed"` // at that position
	Position int    `json:"position"`
	Token    int    `json:"token"`
	Program  string `json:"program"`
	Wrong    int    `json:"argmax_wrong"` // positions with another most likely token
	Close    int    `json:"argmax_close"` // the same, if gorgonia's best two logits are closer than the bound
	KL       Number `json:"kl"`           // largest mean of a program
}

// A Checker compares a plan with gorgonia, which computes the model's unfused graph for the same
// tokens.
type Checker struct {
	in  Input
	is  Description
	ids []int32
	ref *reference
}

// NewChecker builds the graph. It refuses more tokens than there is memory for.
func NewChecker(in Input, is Description, ids []int32) (*Checker, error) {
	ref, err := newReference(in, is.String(), ids)
	if err != nil {
		return nil, err
	}
	if err := ref.checkFit(exec.DetectRAM()); err != nil {
		return nil, err
	}
	return &Checker{in, is, ids, ref}, nil
}

// Check runs every program of the plan and compares each layer and the logits with gorgonia's.
// progress may be nil.
func (c *Checker) Check(ctx context.Context, progress func(Progress)) (*CheckReport, error) {
	t := &c.in.Plan.Target
	r := &CheckReport{Name: c.is.String(), Precision: t.Precision, KV: t.KV, Tokens: len(c.ids), Bound: boundOf(c.in.Plan)}
	ours, err := c.evaluate(ctx, r, progress)
	if err != nil {
		return nil, err
	}
	if err := r.compare(ctx, c.ref, ours, progress); err != nil {
		return nil, &OperandError{r.Name, err}
	}
	return r, nil
}

// evaluate runs every program of the plan, step by step, and returns the values of each program for
// all tokens. If the bound includes steps, it compares them.
func (c *Checker) evaluate(ctx context.Context, r *CheckReport, progress func(Progress)) ([]*values, error) {
	p, err := OpenPlan(c.in, c.is)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if err := p.checkIDs(c.ids); err != nil {
		return nil, err
	}
	var schedules []schedule
	schedules, r.Skipped = coverage(len(c.ids), 0, p)
	var ours []*values
	compared := map[[sha256.Size]byte]bool{} // steps that do as those of an earlier program
	for _, s := range schedules {
		all, steps, tokens := &values{}, stepValues{}, 0
		err := s.each(ctx, func(from, to int) error {
			tell(progress, "program "+s.program, from, len(c.ids), "tokens")
			if all.steps = nil; r.Bound.Step > 0 && p.program(from, to).Name == s.program { // not tokens beyond the last chunk
				all.steps, tokens = steps, to
			}
			return p.addStep(ctx, c.ids, from, to, all)
		})
		if err != nil {
			return nil, err
		}
		if digest := steps.digest(); len(steps) > 0 && !compared[digest] {
			compared[digest] = true
			if err := r.addSteps(ctx, c.ref, c.ids[:tokens], s.program, steps, progress); err != nil {
				return nil, &OperandError{r.Name, err}
			}
		}
		all.steps = nil
		r.Programs, ours = append(r.Programs, s.program), append(ours, all)
	}
	return ours, nil
}

// compare records the differences between ours, the values of each program, and gorgonia's.
func (r *CheckReport) compare(ctx context.Context, ref *reference, ours []*values, progress func(Progress)) error {
	exceed := map[int]gorgoniaref.Value{} // by layer: values that exceed a bound which the float32 floor may raise
	run := gorgoniaref.Run
	if r.Bound.Step > 0 { // float32 is exact enough for bounds so wide, and takes half the time
		run = gorgoniaref.RunFloat32
	}
	err := ref.run(ctx, run, ref.layers, func(v gorgoniaref.Value) error {
		layer := len(r.Layers)
		tell(progress, "gorgonia", layer, ref.layers, "layers")
		if v.Name == logitsName {
			for i, p := range ours {
				if len(p.logits) != len(v.Data) {
					return fmt.Errorf("the plan has %d logits, expected %d", len(p.logits), len(v.Data))
				}
				r.Logits.addWorst(p.logits, v, r.Programs[i], &r.Bound)
			}
			r.Logits.addArgmax(ours, v, &r.Bound)
			return nil
		}
		worst := CheckedLayer{LayerDeviation: LayerDeviation{Layer: layer, Program: r.Programs[0]}, Allowed: r.Bound.D}
		for i, p := range ours {
			if layer >= len(p.layers) || len(p.layers[layer]) != len(v.Data) {
				return fmt.Errorf("the plan does not compute the %d elements of %s", len(v.Data), v.Name)
			}
			if d := metrics.Layer(p.layers[layer], v.Data, v.Cols); Number(d.D) > worst.D {
				worst.LayerDeviation = LayerDeviation{layer, Number(d.D), d.Row, d.Dim, r.Programs[i]}
			}
		}
		r.Layers = append(r.Layers, worst)
		if worst.D > worst.Allowed && r.Bound == Bounds.Exact {
			exceed[layer] = v
		}
		return nil
	})
	if err == nil && len(exceed) > 0 {
		err = r.allowFloor(ctx, ref, exceed, progress)
	}
	r.OK = r.Check() == nil
	return err
}

// allowFloor runs gorgonia in float32 up to the last layer that exceeds its bound, and raises these
// bounds by the float32 floor.
func (r *CheckReport) allowFloor(ctx context.Context, ref *reference, exceed map[int]gorgoniaref.Value, progress func(Progress)) error {
	layer, last := 0, slices.Max(slices.Collect(maps.Keys(exceed)))
	err := ref.run(ctx, gorgoniaref.RunFloat32, last, func(v gorgoniaref.Value) error {
		tell(progress, "gorgonia in float32", layer, last+1, "layers")
		if want, ok := exceed[layer]; ok {
			floor := metrics.Layer(v.Data, want.Data, want.Cols).D
			r.Layers[layer].Floor, r.Layers[layer].Allowed = Number(floor), Number(metrics.Allowed(floor))
		}
		layer++
		if layer > last || r.Layers[layer-1].D > r.Layers[layer-1].Allowed {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// errEnough ends a run of gorgonia after the last needed value.
var errEnough = errors.New("enough")

// logitsName is the name of the graph's output.
const logitsName = "logits"

// addWorst records the largest difference between a program's and gorgonia's logits, relative to
// the allowed one, and the KL divergence of their distributions.
func (l *CheckedLogits) addWorst(ours []float32, v gorgoniaref.Value, program string, bound *Bound) {
	sum := 0.0
	for at := 0; at < len(v.Data); at += v.Cols {
		row := v.Data[at : at+v.Cols]
		allowed := bound.allowed(row)
		for i, want := range row {
			d := math.Abs(float64(ours[at+i]) - want)
			if math.IsNaN(d) {
				d = math.Inf(1)
			}
			if l.Program == "" || d*float64(l.Allowed) > float64(l.Delta)*allowed {
				l.Delta, l.Allowed = Number(d), Number(allowed)
				l.Position, l.Token, l.Program = at/v.Cols, i, program
			}
		}
		kl := metrics.KL(row, ours[at:at+v.Cols])
		if math.IsNaN(kl) {
			kl = math.Inf(1)
		}
		sum += kl
	}
	l.KL = max(l.KL, Number(sum/float64(len(v.Data)/v.Cols)))
}

// addArgmax counts the positions at which a program's most likely token is not gorgonia's.
func (l *CheckedLogits) addArgmax(ours []*values, v gorgoniaref.Value, bound *Bound) {
	for at := 0; at < len(v.Data); at += v.Cols {
		best, margin := metrics.Top(v.Data[at : at+v.Cols])
		other := slices.ContainsFunc(ours, func(p *values) bool {
			mine, _ := metrics.Top(p.logits[at : at+v.Cols])
			return mine != best
		})
		switch {
		case other && margin > bound.allowed(v.Data[at:at+v.Cols]):
			l.Wrong++
		case other:
			l.Close++
		}
	}
}

// Check returns an error if a bound is exceeded. It names the first such step or layer, which causes
// the later ones.
func (r *CheckReport) Check() error {
	if err := r.checkSteps(); err != nil {
		return err
	}
	for _, l := range r.Layers {
		if !(l.D <= l.Allowed) {
			return fmt.Errorf("%s: d from gorgonia's is %.1e in layer %d, position %d, dim %d, program %s, expected at most %.2g", r.Name, l.D, l.Layer, l.Position, l.Dim, l.Program, l.Allowed)
		}
	}
	if l := r.Logits; !(l.Delta <= l.Allowed) {
		return fmt.Errorf("%s: the logit of token %d at position %d, program %s, is %.1e from gorgonia's, expected at most %.2g", r.Name, l.Token, l.Position, l.Program, l.Delta, l.Allowed)
	}
	if kl := r.Logits.KL; !(kl <= r.Bound.KL) {
		return fmt.Errorf("%s: the mean KL divergence of the logits from gorgonia's is %.1e, expected at most %g", r.Name, kl, r.Bound.KL)
	}
	if r.Logits.Wrong > 0 {
		return fmt.Errorf("%s: another most likely token than gorgonia's at %d of %d positions", r.Name, r.Logits.Wrong, r.Tokens)
	}
	return nil
}
