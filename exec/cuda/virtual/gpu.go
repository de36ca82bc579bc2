package virtual

import (
	"strings"
	"time"
)

// A GPU is what a real one can do at most, by its maker's data sheet: bytes and operations per second. A product and
// a sum are two operations. Tensor operations are dense ones on int8.
type GPU struct {
	Name      string
	Bandwidth float64
	Flops     float64 // on float32, outside of tensor cores
	IntOps    float64 // by dp4a, eight each, as often as products of 32-bit integers (CUDA C++ Programming Guide, throughput of instructions)
	TensorOps float64
}

// gpus by generation; sources: the data sheets of Tesla T4 (2019), A100 (2021), RTX 3090 and 4090 (whitepapers of
// the GA102 and AD102 architectures), L4 (2023), H100 SXM and H200 SXM (2023).
var gpus = []GPU{
	{"T4", 320e9, 8.1e12, 32.4e12, 130e12},
	{"RTX 3090", 936e9, 35.6e12, 71e12, 284e12},
	{"A100", 2039e9, 19.5e12, 78e12, 624e12},
	{"L4", 300e9, 30.3e12, 60.6e12, 242e12},
	{"RTX 4090", 1008e9, 82.6e12, 165e12, 660e12},
	{"H100", 3350e9, 67e12, 134e12, 1979e12},
	{"H200", 4800e9, 67e12, 134e12, 1979e12},
}

// GPUs returns those that are known.
func GPUs() []GPU { return append([]GPU(nil), gpus...) }

// LookupGPU finds one by name, whatever the case.
func LookupGPU(name string) (GPU, bool) {
	for _, g := range gpus {
		if strings.EqualFold(g.Name, name) {
			return g, true
		}
	}
	return GPU{}, false
}

// A Bound is what limits a kernel on a GPU.
type Bound struct {
	By   string // "memory", "float", "dp4a", "tensor"; "" where nothing was counted
	Time time.Duration
}

// Bound returns the least time that what was counted takes on a GPU, if nothing but the named limit held it up.
// Memory is the sectors that requests touched; a cache makes it less where blocks read the same, so that for these
// it is no bound.
func (c *Counter) Bound(g GPU) Bound {
	seconds := func(n int64, rate float64) time.Duration { return time.Duration(float64(n) / rate * 1e9) }
	var best Bound
	for _, b := range []Bound{
		{"memory", seconds(32*c.Global.Sectors, g.Bandwidth)},
		{"float", seconds(c.Flops, g.Flops)},
		{"dp4a", seconds(c.IntOps, g.IntOps)},
		{"tensor", seconds(c.TensorOps, g.TensorOps)},
	} {
		if b.Time > best.Time {
			best = b
		}
	}
	return best
}

// SectorsPerRequest is how many sectors of 32 bytes an access of a warp to global memory touches: 4 where lanes access
// 4 bytes each beside each other, 16 where they access 16.
func (c *Counter) SectorsPerRequest() float64 {
	if c.Global.Requests == 0 {
		return 0
	}
	return float64(c.Global.Sectors) / float64(c.Global.Requests)
}
