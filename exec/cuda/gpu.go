package cuda

import "strings"

// A GPU is what a real one can do at most: bytes, operations and instructions per second. A product and a sum are
// two operations; those of tensor cores are dense ones.
type GPU struct {
	Name         string  `json:"name"`
	Bandwidth    float64 `json:"bandwidth"`
	Flops        float64 `json:"flops"`         // on float32, outside of tensor cores
	TensorInts   float64 `json:"tensor_ints"`   // on int8
	TensorFloats float64 `json:"tensor_floats"` // on float16, added in float32
	SMs          int     `json:"sms"`
	Clock        float64 `json:"clock"` // of the SMs at most, cycles per second
}

// gpus by age. Bandwidth and operations are those of NVIDIA's data sheets (T4 2019, A100 80GB SXM 2021, L4 2023, H100
// SXM 2023, H200 SXM 2024; where they tell of sparse matrices, half of that) and, of GeForce, of the whitepapers
// "NVIDIA Ampere GA102 GPU Architecture" (V2.0) and "NVIDIA Ada GPU Architecture" (V2.01), appendix A. SMs and clocks
// are those of the same whitepapers and of "NVIDIA H100 Tensor Core GPU Architecture"; Flops follow from them.
var gpus = []GPU{
	{"T4", 320e9, 8.1e12, 130e12, 65e12, 40, 1.59e9},
	{"A100", 2039e9, 19.5e12, 624e12, 312e12, 108, 1.41e9},
	{"RTX3090", 936e9, 35.6e12, 284e12, 71e12, 82, 1.695e9},
	{"RTX4090", 1008e9, 82.6e12, 660.6e12, 165.2e12, 128, 2.52e9},
	{"L4", 300e9, 30.3e12, 242e12, 121e12, 58, 2.04e9},
	{"H100", 3350e9, 67e12, 1979e12, 989.5e12, 132, 1.98e9},
	{"H200", 4800e9, 67e12, 1979e12, 989.5e12, 132, 1.98e9},
}

// GPUs returns the names of those that are known.
func GPUs() []string {
	names := make([]string, len(gpus))
	for i := range gpus {
		names[i] = strings.ToLower(gpus[i].Name)
	}
	return names
}

// LookupGPU finds one by name, whatever the case.
func LookupGPU(name string) (GPU, bool) {
	for _, g := range gpus {
		if strings.EqualFold(g.Name, name) {
			return g, true
		}
	}
	return GPU{}, false
}

// What an SM of compute capability 7.5 to 9.0 does in a cycle (CUDA C++ Programming Guide, "Compute Capabilities" and
// "Arithmetic Instructions"): its four schedulers issue an instruction of a warp each, 64 lanes multiply integers,
// and shared memory gives a word of each bank. dp4a is taken to be as frequent as a product.
const (
	issued   = 4
	products = 64
)

// A Bound is what limits a kernel on a GPU.
type Bound struct {
	By      string  `json:"by"`      // one of the limits' names, "" where nothing was counted
	Seconds float64 `json:"seconds"` // at least
}

// limits are what a kernel needs of a GPU and how much of that there is in a second. One that needs nothing else
// takes need ÷ rate.
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

// cycles are those of all SMs in a second.
func (g *GPU) cycles() float64 { return float64(g.SMs) * g.Clock }

// Memory returns the seconds that a GPU's memory needs for what was fetched and stored.
func (g *GPU) Memory(c *Counts) float64 { return float64(c.Fetched+c.Stored) / g.Bandwidth }

// Bound returns the least time that what was counted takes, if nothing but one limit held it up. Instructions are those
// of PTX but for moves; a GPU's own differ somewhat. Memory is what caches cannot spare it in a launch.
func (g *GPU) Bound(c *Counts) Bound {
	var most Bound
	for _, l := range limits {
		if s := float64(l.need(c)) / l.rate(g); s > most.Seconds {
			most = Bound{l.name, s}
		}
	}
	return most
}
