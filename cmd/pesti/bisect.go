package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"pesti/conformance/metrics"
	"pesti/exec"
	"pesti/exec/plan"
)

// A bisection is what compare --bisect finds, as --json prints it.
type bisection struct {
	A        *sideReport `json:"a"`
	B        *sideReport `json:"b"`
	Tokens   int         `json:"tokens"`
	MaxD     float64     `json:"max_d"`
	Programs []string    `json:"programs"` // of either plan that ran
	Left     []leftOut   `json:"left_out"` // and those that did not
	Values   int         `json:"values"`   // that both plans compute, each as often as it was compared
	First    *difference `json:"first"`    // null where nothing differs
}

// A difference is a value that differs by more than the bound.
type difference struct {
	Value    string    `json:"value"`
	Layer    int       `json:"layer"` // −1 outside
	D        number    `json:"d"`     // the largest of the value
	Position int       `json:"position"`
	Dim      int       `json:"dim"`
	Steps    [2]stepAt `json:"steps"`   // that compute it, of A and B
	Element  element   `json:"element"` // the first one above the bound
}

type element struct {
	Position int       `json:"position"`
	Dim      int       `json:"dim"`
	Values   [2]number `json:"values"` // of A and B
}

// A stepAt is a step of a plan.
type stepAt struct {
	Program string `json:"program"`
	Wave    int    `json:"wave"`
	Step    int    `json:"step"`
	Kernel  string `json:"kernel"`
}

// bisect runs the tokens through each program of either plan, on both in steps of the same sizes,
// and prints the first value, in the order of B's steps, that differs.
func (a *app) bisect(ctx context.Context, plans [2]*runner, ids []int32, o *compareOptions) error {
	r := &bisection{A: plans[0].is, B: plans[1].is, Tokens: len(ids), MaxD: defaultBound(plans[0].plan, plans[1].plan), Programs: []string{}, Left: []leftOut{}}
	if o.given.Changed("max-d") {
		r.MaxD = o.maxD.x
	}
	rounds, left := roundsOf(len(ids), min(plans[0].plan.Target.Ubatch, plans[1].plan.Target.Ubatch), plans[:]...)
	r.Left = append(r.Left, left...)
	for _, round := range rounds {
		r.Programs = append(r.Programs, round.program)
		err := round.each(ctx, func(from, to int) error {
			if r.First != nil {
				return nil
			}
			a.progress("program %s: %d of %d tokens", round.program, from, len(ids))
			return r.run(plans, ids, from, to)
		})
		if err != nil {
			return err
		}
		if r.First != nil {
			break
		}
	}
	a.progress("")
	if err := a.show(r, o.asJSON); err != nil {
		return err
	}
	switch d := r.First; {
	case !o.given.Changed("max-d"):
	case d != nil:
		return fmt.Errorf("%s: d of %s from %s is %.2e, expected at most %g", r.B, d.Value, r.A, d.D, r.MaxD)
	case len(r.Left) > 0:
		return fmt.Errorf("%s and %s: program %s %s, expected all to run for --max-d", r.A, r.B, r.Left[0].Program, r.Left[0].Why)
	}
	return nil
}

// defaultBound returns by how much values of two plans may differ: not at all where they were
// compiled alike, since bounds and workers change no bit.
func defaultBound(a, b *plan.Plan) float64 {
	x, y := a.Target, b.Target
	if x.Backend == y.Backend && x.ISA == y.ISA && x.Precision == y.Precision && x.KV == y.KV && a.Passes == b.Passes && a.Chunk() == b.Chunk() {
		return 0
	}
	return metrics.Tolerance
}

// A seen value is one of A's.
type seen struct {
	at   stepAt
	data []float32
	cols int
}

func see(v exec.Observation) seen {
	return seen{stepAt{v.Program.Name, v.Wave, v.Step.ID, v.Step.Kernel}, v.Data, len(v.Data) / v.Rows}
}

// run evaluates ids[from:to] on both plans and notes the first difference.
func (r *bisection) run(plans [2]*runner, ids []int32, from, to int) error {
	rows := min(to-from, plans[0].rows(from, to), plans[1].rows(from, to))
	ours := map[string]seen{}
	plans[0].see = func(v exec.Observation) {
		key := valueOf(v.Name)
		if _, twice := ours[key]; !twice { // else it is a selection of rows
			s := see(v)
			s.data = slices.Clone(s.data)
			ours[key] = s
		}
	}
	plans[1].see = func(v exec.Observation) {
		want, ok := ours[valueOf(v.Name)]
		got := see(v)
		if !ok || r.First != nil || got.cols != want.cols {
			return
		}
		// What only one of them computes for wanted rows alone is compared there: in the last ones.
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
		r.First = &difference{
			Value: v.Name, Layer: v.Step.Layer, D: number(worst.D), Position: begin + worst.Row, Dim: worst.Dim,
			Steps:   [2]stepAt{want.at, got.at},
			Element: element{begin + first.Row, first.Dim, [2]number{number(want.data[at]), number(got.data[at])}},
		}
	}
	for _, p := range plans {
		if err := p.step(ids, from, to, to-rows, to); err != nil {
			return err
		}
	}
	return nil
}

func (r *bisection) print(w io.Writer) error {
	var b strings.Builder
	b.WriteString(r.A.line() + r.B.line() + "\n")
	if d := r.First; d != nil {
		fmt.Fprintf(&b, "%s differs: d %.2e at position %d, dim %d\n", d.Value, d.D, d.Position, d.Dim)
		for i, side := range []*sideReport{r.A, r.B} {
			s := d.Steps[i]
			fmt.Fprintf(&b, "  %s: program %s, wave %d, step %d, %s\n", side.letter, s.Program, s.Wave, s.Step, s.Kernel)
		}
		fmt.Fprintf(&b, "  first element above %g: position %d, dim %d: %.7g, then %.7g\n", r.MaxD, d.Element.Position, d.Element.Dim, d.Element.Values[0], d.Element.Values[1])
	} else {
		fmt.Fprintf(&b, "no step differs by more than %g: %d values compared in %s\n", r.MaxD, r.Values, strings.Join(r.Programs, ", "))
		b.WriteString(sayLeft(r.Left))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
