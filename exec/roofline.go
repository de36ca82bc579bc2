package exec

import (
	"fmt"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
	"pesti/exec/plan"
)

// Prober returns what measures the roofline of the engine's workers, by a buffer of size bytes and
// the plan's instruction set. It may be used between steps; its Free gives the buffer back.
func (e *Engine) Prober(size int64) (*cpu.Prober, error) {
	size = min(size, cpu.MaxProbe)
	if ram := cpu.DetectRAM(); ram.Total > 0 && size > ram.Available {
		return nil, fmt.Errorf("plan: a buffer of %s to measure reading with, expected at most the %s of memory that are available; take a smaller model",
			plan.HumanBytes(size), plan.HumanBytes(ram.Available))
	}
	sets, err := isa.UpTo(e.plan.Target.ISA)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return cpu.NewProber(e.machine, int(size), sets)
}

// StreamBytes returns the bytes of weights and caches that a program reads in one run.
func (e *Engine) StreamBytes(g *plan.Program, l plan.Load) (int64, error) {
	c, err := plan.NewCoster(e.plan).Program(g, l, e.Threads())
	return c.Stream(), err
}

// seconds returns how long a cost takes at the least: moving, or computing where that is longer.
// share is the part of the machine that is at work, 1 for all workers. Weights and caches come from
// a buffer of the size that was measured, activations from a core's own cache.
func seconds(r *cpu.Roofline, c plan.Cost, unit string, share float64) float64 {
	moving := over(c.Stream(), r.Read) + over(c.Values+c.Written, r.Near)
	computing := over(c.MACs, r.MACs[unit]) + over(c.FLOPs, r.MACs["f32"])
	return max(moving, computing) / share
}

// over is amount ÷ rate, 0 where the rate was not measured.
func over(amount int64, rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return float64(amount) / rate
}
