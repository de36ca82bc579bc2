package exec

import (
	"context"
	"errors"
	"fmt"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
	"pesti/exec/plan"
	"pesti/exec/profile"
)

// Prober returns a Prober for the roofline of the engine's workers, with a buffer of size bytes and
// the plan's instruction set. It may be used between forward passes; its Free frees the buffer.
func (e *Engine) Prober(size int64) (*cpu.Prober, error) {
	if e.closed {
		return nil, ErrEngineClosed
	}
	if e.machine == nil {
		return nil, fmt.Errorf("plan: is for a CUDA device, whose roofline cannot be measured; expected a plan for the processor")
	}
	size = min(size, cpu.MaxProbe)
	if limit := OverRAM(cpu.DetectRAM(), size); limit != "" {
		return nil, fmt.Errorf("plan: a buffer of %s to measure reading with, expected at most %s; take a smaller model", plan.HumanBytes(size), limit)
	}
	sets, err := isa.UpTo(e.plan.Target.ISA)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return cpu.NewProber(e.machine, int(size), sets)
}

// rooflineSamples is the number of samples of each figure of a roofline.
const rooflineSamples = 5

// roofline measures the roofline of the engine's workers with a buffer of size bytes.
func (e *Engine) roofline(ctx context.Context, size int64) (*cpu.Roofline, error) {
	p, err := e.Prober(size)
	if err != nil {
		return nil, err
	}
	for range rooflineSamples {
		if err := p.Sample(ctx); err != nil {
			return nil, errors.Join(err, p.Free())
		}
	}
	return p.Roofline(), p.Free()
}

// ProfileReport compares the profile with the costs of the plan and the roofline, which it measures on
// the processor, between steps.
func (e *Engine) ProfileReport(ctx context.Context) (*profile.Report, error) {
	p := e.Profile()
	if p == nil || len(p.Programs) == 0 {
		return nil, errors.New("nothing ran, expected at least one token to profile")
	}
	if p.Device != nil {
		return p.Report(e.plan, profile.DeviceRoofline(p.Device))
	}
	first := &p.Programs[0]
	cost, err := plan.NewCoster(e.plan).Program(first.Program, first.Load, e.Threads())
	if err != nil {
		return nil, err
	}
	roof, err := e.roofline(ctx, cost.Stream())
	if err != nil {
		return nil, err
	}
	return p.Report(e.plan, roof)
}
