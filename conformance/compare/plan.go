package compare

import (
	"context"
	"fmt"
	"strings"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf"
)

// An Input is a plan with the files and options to run it.
type Input struct {
	Plan    *plan.Plan
	Model   *gguf.File
	Options exec.Options // of its engine, with the sidecar if the plan has one; Observe is replaced
}

// A PlanOperand runs a plan.
type PlanOperand struct {
	is      Description
	plan    *plan.Plan
	engine  *exec.Engine
	observe func(exec.Observation) // receives the values of the step in progress
}

// OpenPlan opens an engine for the plan of an input. It sets the fields of the description that
// follow from the plan. Errors name the operand by the description.
func OpenPlan(in Input, is Description) (*PlanOperand, error) {
	t := &in.Plan.Target
	is.Precision, is.KV, is.Passes = t.Precision, t.KV, in.Plan.Passes
	p := &PlanOperand{is: is, plan: in.Plan}
	in.Options.Observe = func(v exec.Observation) { p.observe(v) }
	var err error
	if p.engine, err = exec.Open(in.Plan, in.Model, in.Options); err != nil {
		return nil, &OperandError{p.name(), err}
	}
	return p, nil
}

func (p *PlanOperand) name() string { return p.is.String() }

// Describe returns the description of the operand.
func (p *PlanOperand) Describe() *Description { return &p.is }

// Close closes the engine. It does not close the files of the input.
func (p *PlanOperand) Close() { p.engine.Close() }

// Vocabulary returns the number of logits for a position.
func (p *PlanOperand) Vocabulary() int {
	_, width, _ := p.plan.Logits() // the engine has checked it
	return int(width)
}

// checkIDs returns an error for more tokens than the context has positions.
func (p *PlanOperand) checkIDs(ids []int32) error {
	if ctx := p.plan.Target.Ctx; int64(len(ids)) > ctx {
		return &OperandError{p.name(), fmt.Errorf("found %d tokens, expected at most %d, the context of the plan", len(ids), ctx)}
	}
	return nil
}

// values runs one forward pass, or as few as the plan allows.
func (p *PlanOperand) values(ctx context.Context, ids []int32, from, to int) (*values, error) {
	var v values
	for to-from > int(p.plan.Target.Ubatch) {
		end := from + int(p.plan.Target.Ubatch)
		if err := p.addStep(ctx, ids, from, end, &v); err != nil {
			return nil, err
		}
		from = end
	}
	return &v, p.addStep(ctx, ids, from, to, &v)
}

// addStep runs one forward pass and appends its values. If the plan returns the logits of fewer
// tokens at a time, it repeats the pass for the other logits; the other values stay the same.
func (p *PlanOperand) addStep(ctx context.Context, ids []int32, from, to int, all *values) error {
	for first, last := from, 0; first < to; first = last {
		last = min(first+p.maxRows(from, to), to)
		seen := map[string]bool{}
		p.observe = func(v exec.Observation) {
			name, n := valueName(v.Name), v.Step.Layer
			again := seen[name] // a later value of that name is a selection of its rows
			seen[name] = true
			if again || v.Rows == to-from && first > from { // all rows came with the first part
				return
			}
			if all.steps != nil {
				all.steps.add(p.plan, name, v)
			}
			if name != ResidualName(n) {
				return
			}
			for len(all.layers) <= n {
				all.layers = append(all.layers, nil)
			}
			all.layers[n] = append(all.layers[n], v.Data...)
		}
		if err := p.step(ctx, ids, from, to, first, last); err != nil {
			return err
		}
		for row := range last - first {
			all.logits = append(all.logits, p.engine.Logits(row)...)
		}
	}
	if all.steps != nil {
		return all.steps.addCaches(p.plan, p.engine)
	}
	return nil
}

// program returns the program that a step of the tokens from ≤ t < to runs.
func (p *PlanOperand) program(from, to int) *plan.Program {
	return p.plan.ProgramFor(plan.Workload{T: int64(to - from), Seqs: 1, Pos: int64(from)})
}

// maxRows returns how many rows of logits such a step can return.
func (p *PlanOperand) maxRows(from, to int) int { return int(p.program(from, to).MaxR) }

// step runs ids[from:to] and requests the logits of ids[first:last].
func (p *PlanOperand) step(ctx context.Context, ids []int32, from, to, first, last int) error {
	if err := p.engine.Forward(ctx, BatchOf(ids, from, to, first, last)); err != nil {
		return &OperandError{p.name(), err}
	}
	return nil
}

// BatchOf returns the batch that evaluates ids[from:to] of one sequence of ids, and requests the
// logits of ids[first:last].
func BatchOf(ids []int32, from, to, first, last int) *exec.Batch {
	b := &exec.Batch{Tokens: ids[from:to], Seq: make([]int32, to-from)}
	for t := from; t < to; t++ {
		b.Pos = append(b.Pos, int32(t))
	}
	for t := first; t < last; t++ {
		b.Rows = append(b.Rows, int32(t-from))
	}
	return b
}

// ResidualName is the name of the value that holds the residual stream after a block.
func ResidualName(block int) string { return fmt.Sprintf("blk.%d.out", block) }

// valueName returns the name of a value without the suffix of pass sink_rows, which marks values of
// the selected rows.
func valueName(name string) string { return strings.Replace(name, ".rows", "", 1) }
