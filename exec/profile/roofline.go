package profile

import (
	"fmt"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/cuda"
	"pesti/exec/plan"
)

// DeviceRoofline returns the roofline of a device: only its memory bandwidth, from clock and bus
// width. It assumes that activations stay in the cache and that products take no time.
func DeviceRoofline(device *cuda.Properties) *cpu.Roofline {
	return &cpu.Roofline{Workers: 1, Read: float64(device.Bandwidth)}
}

// Limits returns lower bounds for the seconds of one run of a program under a roofline: from
// reading weights and caches alone, and from computing alone.
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

// seconds returns a lower bound for the time of a cost: the longer of moving and computing. share
// is the fraction of the machine that works, 1 for all workers. It assumes that weights and caches
// are read at the measured rate of the large buffer, activations from a core's own cache.
func seconds(r *cpu.Roofline, c plan.Cost, unit string, share float64) float64 {
	moving := over(c.Stream(), r.Read) + over(c.Values+c.Written, r.Near)
	return max(moving, calculating(r, c, unit)) / share
}

// calculating returns a lower bound for the computing time of all workers.
func calculating(r *cpu.Roofline, c plan.Cost, unit string) float64 {
	return over(c.MACs, r.MACs[unit]) + over(c.FLOPs, r.MACs[kernel.ProbeF32])
}

// over returns amount ÷ rate, or 0 if the rate was not measured.
func over(amount int64, rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return float64(amount) / rate
}
