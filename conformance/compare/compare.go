package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"pesti/conformance/metrics"
)

// A Comparison holds the differences of B from A.
type Comparison struct {
	A          *Description        `json:"a"`
	B          *Description        `json:"b"`
	Tokens     int                 `json:"tokens"`
	Divergence                     // of the program with the largest mean
	Programs   []ProgramDivergence `json:"programs"` // for each program of either plan that ran; one without a name for folders
	Skipped    []Skipped           `json:"skipped"`
	Layers     []LayerDeviation    `json:"layers"` // empty if a folder has no layers
}

// A Divergence compares B's logits with A's.
type Divergence struct {
	MeanKL   Number  `json:"mean_kl"` // nats per token
	MaxKL    Number  `json:"max_kl"`
	Position int     `json:"max_kl_position"`
	SameTop  int     `json:"same_top"` // positions with the same most likely token
	Top1     float64 `json:"top1"`     // their fraction of all positions
}

// A ProgramDivergence is the divergence in the runs of one program.
type ProgramDivergence struct {
	Program string `json:"program"`
	Divergence
}

// A LayerDeviation is the largest difference of a residual stream.
type LayerDeviation struct {
	Layer    int    `json:"layer"`
	D        Number `json:"d"`
	Position int    `json:"position"`
	Dim      int    `json:"dim"`
	Program  string `json:"program,omitempty"` // program that computed it
}

// Compare evaluates the tokens ids on both operands, once for every program of either plan, and
// returns the differences of B from A, the reference. progress may be nil.
func Compare(ctx context.Context, a, b Operand, ids []int32, progress func(Progress)) (*Comparison, error) {
	operands := [2]Operand{a, b}
	if err := checkComparable(operands, ids); err != nil {
		return nil, err
	}
	c := &Comparison{A: a.Describe(), B: b.Describe(), Tokens: len(ids), Layers: []LayerDeviation{}}
	var plans []*PlanOperand
	for _, o := range operands {
		if p, ok := o.(*PlanOperand); ok {
			plans = append(plans, p)
		}
	}
	var schedules []schedule
	schedules, c.Skipped = coverage(len(ids), 0, plans...)
	if len(plans) == 0 {
		schedules = []schedule{folderSchedule(len(ids))}
	}
	for _, s := range schedules {
		if err := c.addSchedule(ctx, operands, ids, &s, progress); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// checkComparable returns an error for operands that cannot be compared on these tokens.
func checkComparable(operands [2]Operand, ids []int32) error {
	if len(ids) == 0 {
		return errors.New("found no tokens, expected at least one to compare on")
	}
	if err := SameVocabulary(operands[0], operands[1]); err != nil {
		return err
	}
	for _, o := range operands {
		if err := o.checkIDs(ids); err != nil {
			return err
		}
	}
	return nil
}

// SameVocabulary returns an error unless both operands have the same number of logits for a
// position.
func SameVocabulary(a, b Operand) error {
	if va, vb := a.Vocabulary(), b.Vocabulary(); va != vb {
		return fmt.Errorf("%s: a vocabulary of %d tokens, expected the %d of %s", b.Describe(), vb, va, a.Describe())
	}
	return nil
}

// addSchedule adds the differences in the runs of one schedule.
func (c *Comparison) addSchedule(ctx context.Context, operands [2]Operand, ids []int32, s *schedule, progress func(Progress)) error {
	var logits metrics.Logits
	vocab := operands[0].Vocabulary()
	err := s.each(ctx, func(from, to int) error {
		tell(progress, cmp.Or(s.program, "values"), from, len(ids), "tokens")
		var v [2]*values
		for i, o := range operands {
			var err error
			if v[i], err = o.values(ctx, ids, from, to); err != nil {
				return err
			}
		}
		for t := range to - from {
			logits.Add(v[0].logits[t*vocab:(t+1)*vocab], v[1].logits[t*vocab:(t+1)*vocab])
		}
		return c.addLayers(v, s.program, from, to-from)
	})
	if err != nil {
		return err
	}
	d := Divergence{Number(logits.MeanKL()), Number(logits.MaxKL), logits.Worst, logits.SameTop, logits.Top1()}
	if len(c.Programs) == 0 || d.MeanKL > c.MeanKL {
		c.Divergence = d
	}
	c.Programs = append(c.Programs, ProgramDivergence{s.program, d})
	return nil
}

// addLayers compares the residual streams of the tokens from a position on, if both operands have
// them.
func (c *Comparison) addLayers(v [2]*values, program string, from, tokens int) error {
	want, got := v[0].layers, v[1].layers
	if len(want) == 0 || len(got) == 0 {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d layers, expected the %d of %s", c.B, len(got), len(want), c.A)
	}
	for n := range want {
		if len(got[n]) != len(want[n]) {
			return fmt.Errorf("%s: layer %d is %d wide, expected %d as in %s", c.B, n, len(got[n])/tokens, len(want[n])/tokens, c.A)
		}
		if len(c.Layers) == n {
			c.Layers = append(c.Layers, LayerDeviation{Layer: n, Program: program})
		}
		d := metrics.Layer(got[n], want[n], len(want[n])/tokens)
		if worst := &c.Layers[n]; Number(d.D) > worst.D {
			*worst = LayerDeviation{n, Number(d.D), from + d.Row, d.Dim, program}
		}
	}
	return nil
}

// CheckKL returns an error if the mean divergence exceeds a bound.
func (c *Comparison) CheckKL(bound float64) error {
	if !(float64(c.MeanKL) <= bound) {
		return fmt.Errorf("%s: mean KL divergence from %s is %.2e, expected at most %g", c.B, c.A, c.MeanKL, bound)
	}
	return nil
}

// CheckD returns an error if d of a layer exceeds a bound, or if there are no layers.
func (c *Comparison) CheckD(bound float64) error {
	if len(c.Layers) == 0 {
		return fmt.Errorf("%s and %s: no layers to compare, expected some for a bound on d", c.A, c.B)
	}
	worst := slices.MaxFunc(c.Layers, func(x, y LayerDeviation) int { return cmp.Compare(x.D, y.D) })
	if !(float64(worst.D) <= bound) {
		return fmt.Errorf("%s: d from %s is %.2e in layer %d, position %d, expected at most %g", c.B, c.A, worst.D, worst.Layer, worst.Position, bound)
	}
	return nil
}
