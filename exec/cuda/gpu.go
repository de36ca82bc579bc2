package cuda

import "strings"

// A GPU has the peak rates of a real GPU: bytes, operations and instructions per second. A multiply-add
// is two operations. Rates of tensor cores are without sparsity.
type GPU struct {
	Name         string  `json:"name"`
	Bandwidth    float64 `json:"bandwidth"`
	Flops        float64 `json:"flops"`         // on float32, outside of tensor cores
	TensorInts   float64 `json:"tensor_ints"`   // on int8
	TensorFloats float64 `json:"tensor_floats"` // on float16, added in float32
	SMs          int     `json:"sms"`
	Clock        float64 `json:"clock"` // boost clock of the SMs in cycles per second
}

// gpus is in order of age. Bandwidth and operations are from NVIDIA's data sheets (T4 2019, A100 80GB SXM
// 2021, L4 2023, H100 SXM 2023, H200 SXM 2024; half of the figures that are with sparsity) and, for GeForce,
// from the whitepapers "NVIDIA Ampere GA102 GPU Architecture" (V2.0) and "NVIDIA Ada GPU Architecture"
// (V2.01), appendix A. SMs and clocks are from the same whitepapers and "NVIDIA H100 Tensor Core GPU
// Architecture". Flops follow from SMs and clock.
var gpus = []GPU{
	{"T4", 320e9, 8.1e12, 130e12, 65e12, 40, 1.59e9},
	{"A100", 2039e9, 19.5e12, 624e12, 312e12, 108, 1.41e9},
	{"RTX3090", 936e9, 35.6e12, 284e12, 71e12, 82, 1.695e9},
	{"RTX4090", 1008e9, 82.6e12, 660.6e12, 165.2e12, 128, 2.52e9},
	{"L4", 300e9, 30.3e12, 242e12, 121e12, 58, 2.04e9},
	{"H100", 3350e9, 67e12, 1979e12, 989.5e12, 132, 1.98e9},
	{"H200", 4800e9, 67e12, 1979e12, 989.5e12, 132, 1.98e9},
}

// GPUs returns the names of the known GPUs.
func GPUs() []string {
	names := make([]string, len(gpus))
	for i := range gpus {
		names[i] = strings.ToLower(gpus[i].Name)
	}
	return names
}

// LookupGPU returns a GPU by name, ignoring case.
func LookupGPU(name string) (GPU, bool) {
	for _, g := range gpus {
		if strings.EqualFold(g.Name, name) {
			return g, true
		}
	}
	return GPU{}, false
}

// What an SM of compute capability 7.5 to 9.0 does per cycle (CUDA C++ Programming Guide, "Compute
// Capabilities" and "Arithmetic Instructions"): its four schedulers issue one warp instruction each, 64
// lanes multiply integers, and each bank of shared memory delivers a word. The rate of dp4a is assumed to
// be that of an integer multiplication.
const (
	issued   = 4
	products = 64
)

// A Bound is what limits a kernel on a GPU.
type Bound struct {
	By      string  `json:"by"`      // a name in limits, or "" if nothing was counted
	Seconds float64 `json:"seconds"` // lower bound of the time
}

// limits has the resources of a GPU: how much a kernel needs of each, and the GPU's rate per second. The
// kernel takes at least need ÷ rate.
var limits = []struct {
	name string
	need func(*Counts) int64
	rate func(*GPU) float64
}{
	{"memory", func(c *Counts) int64 { return c.Fetched + c.Stored }, func(g *GPU) float64 { return g.Bandwidth }},
	{"shared", func(c *Counts) int64 { return c.Shared.Parts }, (*GPU).cycles},
	{"float", func(c *Counts) int64 { return c.Flops }, func(g *GPU) float64 { return g.Flops }},
	{"dp4a", func(c *Counts) int64 { return c.DotOps }, func(g *GPU) float64 { return 8 * products * g.cycles() }},
	{"tensor", func(c *Counts) int64 { return c.TensorInts }, func(g *GPU) float64 { return g.TensorInts }},
	{"tensor float", func(c *Counts) int64 { return c.TensorFloats }, func(g *GPU) float64 { return g.TensorFloats }},
	{"issue", func(c *Counts) int64 { return c.Instructions.All() - c.Instructions[Move] }, func(g *GPU) float64 { return issued * g.cycles() }},
}

// cycles returns the cycles of all SMs per second.
func (g *GPU) cycles() float64 { return float64(g.SMs) * g.Clock }

// Memory returns the seconds that a GPU's memory needs for the fetched and stored bytes.
func (g *GPU) Memory(c *Counts) float64 { return float64(c.Fetched+c.Stored) / g.Bandwidth }

// Bound returns the largest of the lower bounds, as in a roofline. Instructions are PTX instructions
// without moves; the GPU's machine code differs somewhat. Memory traffic assumes a perfect cache within a
// launch.
func (g *GPU) Bound(c *Counts) Bound {
	var most Bound
	for _, l := range limits {
		if s := float64(l.need(c)) / l.rate(g); s > most.Seconds {
			most = Bound{l.name, s}
		}
	}
	return most
}
