package profile

import (
	"fmt"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/cuda"
	"pesti/exec/plan"
)

// DeviceRoofline returns the roofline of a device: its memory bandwidth alone, by clock and bus. It
// assumes that activations stay in the cache and that products take no time.
func DeviceRoofline(card *cuda.Properties) *cpu.Roofline {
	return &cpu.Roofline{Workers: 1, Read: float64(card.Bandwidth)}
}

// Limits returns how many seconds one run of a program takes at the least on the machine of a
// roofline: reading weights and caches alone, and computing alone.
func Limits(p *plan.Plan, g *plan.Program, l plan.Workload, r *cpu.Roofline) (reading, computing float64, err error) {
	costs := plan.NewCoster(p)
	for _, st := range g.Steps() {
		for w := range r.Workers {
			c, err := costs.Step(g, st, l, w, r.Workers)
			if err != nil {
				return 0, 0, fmt.Errorf("plan: %w", err)
			}
			reading += over(c.Stream(), r.Read)
			computing += calculating(r, c, unitOf(st))
		}
	}
	return reading, computing, nil
}

// seconds returns how long a cost takes at the least: moving, or computing where that is longer.
// share is the part of the machine that is at work, 1 for all workers. Weights and caches come from
// a buffer of the size that was measured, activations from a core's own cache.
func seconds(r *cpu.Roofline, c plan.Cost, unit string, share float64) float64 {
	moving := over(c.Stream(), r.Read) + over(c.Values+c.Written, r.Near)
	return max(moving, calculating(r, c, unit)) / share
}

// calculating returns how long all workers compute at the least.
func calculating(r *cpu.Roofline, c plan.Cost, unit string) float64 {
	return over(c.MACs, r.MACs[unit]) + over(c.FLOPs, r.MACs[kernel.ProbeF32])
}

// over is amount ÷ rate, 0 where the rate was not measured.
func over(amount int64, rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return float64(amount) / rate
}
