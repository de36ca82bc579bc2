package compare

import (
	"context"
	"fmt"
	"slices"

	"pesti/conformance/metrics"
	"pesti/exec"
	"pesti/exec/plan"
)

// A Bisection is the first value of B that differs from A's.
type Bisection struct {
	A        *Description `json:"a"`
	B        *Description `json:"b"`
	Tokens   int          `json:"tokens"`
	MaxD     float64      `json:"max_d"`
	Programs []string     `json:"programs"` // programs of either plan that ran
	Skipped  []Skipped    `json:"skipped"`
	Values   int          `json:"values"` // number of comparisons of values that both plans compute
	First    *Difference  `json:"first"`  // null if nothing differs
}

// A Difference is a value that differs by more than the bound.
type Difference struct {
	Value    string    `json:"value"`
	Layer    int       `json:"layer"` // −1 outside all layers
	D        Number    `json:"d"`     // largest d of the value
	Position int       `json:"position"`
	Dim      int       `json:"dim"`
	Steps    [2]StepAt `json:"steps"`   // steps of A and B that compute it
	Element  Element   `json:"element"` // the first one above the bound
}

// An Element is one element of a value that differs.
type Element struct {
	Position int       `json:"position"`
	Dim      int       `json:"dim"`
	Values   [2]Number `json:"values"` // of A and B
}

// A StepAt names a step of a plan.
type StepAt struct {
	Program string `json:"program"`
	Wave    int    `json:"wave"`
	Step    int    `json:"step"`
	Kernel  string `json:"kernel"`
}

// Bisect runs the tokens ids through each program of either plan, in steps of the same sizes on
// both plans. It returns the first value, in the order of B's steps, whose d exceeds maxD. progress
// may be nil.
func Bisect(ctx context.Context, a, b *PlanOperand, ids []int32, maxD float64, progress func(Progress)) (*Bisection, error) {
	if err := checkComparable([2]Operand{a, b}, ids); err != nil {
		return nil, err
	}
	plans := [2]*PlanOperand{a, b}
	r := &Bisection{A: &a.is, B: &b.is, Tokens: len(ids), MaxD: maxD, Programs: []string{}}
	var schedules []schedule
	schedules, r.Skipped = coverage(len(ids), min(a.plan.Target.Ubatch, b.plan.Target.Ubatch), plans[:]...)
	for _, s := range schedules {
		r.Programs = append(r.Programs, s.program)
		err := s.each(ctx, func(from, to int) error {
			if r.First != nil {
				return nil
			}
			tell(progress, "program "+s.program, from, len(ids), "tokens")
			return r.run(ctx, plans, ids, from, to)
		})
		if err != nil {
			return nil, err
		}
		if r.First != nil {
			break
		}
	}
	return r, nil
}

// DefaultBound returns the largest allowed d between two plans. It is 0 if their options differ
// only in bounds and the number of workers, which change no bit.
func DefaultBound(a, b *plan.Plan) float64 {
	x, y := a.Target, b.Target
	if x.Backend == y.Backend && x.ISA == y.ISA && x.Precision == y.Precision && x.KV == y.KV && a.Passes == b.Passes && a.Chunk() == b.Chunk() {
		return 0
	}
	return metrics.Tolerance
}

// Check returns an error if a value differs or a program did not run.
func (r *Bisection) Check() error {
	if d := r.First; d != nil {
		return fmt.Errorf("%s: d of %s from %s is %.2e, expected at most %g", r.B, d.Value, r.A, d.D, r.MaxD)
	}
	if len(r.Skipped) > 0 {
		return fmt.Errorf("%s and %s: program %s %s, expected all to run for a bound on d", r.A, r.B, r.Skipped[0].Program, r.Skipped[0].Why)
	}
	return nil
}

// An observed is a value that a step computed.
type observed struct {
	at   StepAt
	data []float32
	cols int
}

func observedOf(v exec.Observation) observed {
	return observed{StepAt{v.Program.Name, v.Wave, v.Step.ID, v.Step.Kernel}, v.Data, len(v.Data) / v.Rows}
}

// run evaluates ids[from:to] on both plans and records the first difference.
func (r *Bisection) run(ctx context.Context, plans [2]*PlanOperand, ids []int32, from, to int) error {
	rows := min(to-from, plans[0].maxRows(from, to), plans[1].maxRows(from, to))
	ofA := map[string]observed{}
	plans[0].observe = func(v exec.Observation) {
		key := valueName(v.Name)
		if _, twice := ofA[key]; !twice { // a second value of the name is a selection of rows
			s := observedOf(v)
			s.data = slices.Clone(s.data)
			ofA[key] = s
		}
	}
	plans[1].observe = func(v exec.Observation) {
		want, ok := ofA[valueName(v.Name)]
		got := observedOf(v)
		if !ok || r.First != nil || got.cols != want.cols {
			return
		}
		// If only one plan computes all rows, compare the requested ones, which are the last.
		common := min(len(got.data), len(want.data))
		got.data, want.data = got.data[len(got.data)-common:], want.data[len(want.data)-common:]
		r.Values++
		first, found := metrics.First(got.data, want.data, got.cols, r.MaxD)
		if !found {
			return
		}
		worst := metrics.Layer(got.data, want.data, got.cols)
		at := first.Row*got.cols + first.Dim
		begin := to - common/got.cols
		r.First = &Difference{
			Value: v.Name, Layer: v.Step.Layer, D: Number(worst.D), Position: begin + worst.Row, Dim: worst.Dim,
			Steps:   [2]StepAt{want.at, got.at},
			Element: Element{begin + first.Row, first.Dim, [2]Number{Number(want.data[at]), Number(got.data[at])}},
		}
	}
	for _, p := range plans {
		if err := p.step(ctx, ids, from, to, to-rows, to); err != nil {
			return err
		}
	}
	return nil
}
