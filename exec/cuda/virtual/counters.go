package virtual

import (
	"maps"
	"math/bits"
	"slices"

	"pesti/exec/cuda/virtual/ptx"
)

// A Counter is what the launches of a kernel did.
type Counter struct {
	Kernel       string
	Launches     int64
	Instructions int64 // of warps
	Threads      int64 // instructions of threads
	Flops        int64 // operations on float32, float16 and float64 outside of tensor cores: an FMA is two
	IntOps       int64 // of dp4a: eight each
	TensorOps    int64 // of mma: two for each product
	Global       Traffic
	Shared       Traffic
	Local        Traffic
	Param        Traffic
}

// Traffic is what instructions accessed in a space of memory.
type Traffic struct {
	Requests      int64 // instructions of warps
	Read, Written int64 // bytes
	Sectors       int64 // of 32 bytes that the requests touched; of global memory alone
}

func (t *Traffic) add(o *Traffic) {
	t.Requests += o.Requests
	t.Read += o.Read
	t.Written += o.Written
	t.Sectors += o.Sectors
}

func (c *Counter) add(o *Counter) {
	c.Instructions += o.Instructions
	c.Threads += o.Threads
	c.Flops += o.Flops
	c.IntOps += o.IntOps
	c.TensorOps += o.TensorOps
	c.Global.add(&o.Global)
	c.Shared.add(&o.Shared)
	c.Local.add(&o.Local)
	c.Param.add(&o.Param)
}

func (c *Counter) space(s space) *Traffic {
	switch s {
	case sharedSpace:
		return &c.Shared
	case localSpace:
		return &c.Local
	case paramSpace:
		return &c.Param
	}
	return &c.Global
}

// count adds a block of instructions.
func (c *Counter) count(w *work, mask uint32) {
	threads := int64(bits.OnesCount32(mask))
	c.Instructions += w.instructions
	c.Threads += w.instructions * threads
	c.Flops += w.flops * threads
	c.IntOps += w.intOps * threads
	c.TensorOps += w.tensorOps
}

// A work is what instructions do: flops and intOps for each thread, the others for the warp.
type work struct{ instructions, flops, intOps, tensorOps int64 }

func (w *work) add(o work) {
	w.flops += o.flops
	w.intOps += o.intOps
	w.tensorOps += o.tensorOps
}

// flopsOf are operations of a thread by opcode.
var flopsOf = map[string]int64{"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2, "div": 1, "sqrt": 1, "rcp": 1, "rsqrt": 1, "ex2": 1, "lg2": 1, "tanh": 1, "min": 1, "max": 1}

// operation counts an arithmetic instruction.
func (w *work) operation(in *ptx.Instr) {
	if in.Op == "dp4a" {
		w.intOps += 8
		return
	}
	switch in.Type() {
	case "f32", "f16", "bf16", "f64":
		w.flops += flopsOf[in.Op]
	case "f16x2", "bf16x2":
		w.flops += 2 * flopsOf[in.Op]
	}
}

// counter returns that of a kernel.
func (d *Device) counter(kernel string) *Counter {
	if d.counters == nil {
		d.counters = map[string]*Counter{}
	}
	c := d.counters[kernel]
	if c == nil {
		c = &Counter{Kernel: kernel}
		d.counters[kernel] = c
	}
	return c
}

// Counters returns what was counted since the device was opened or ResetCounters was called, by the
// kernels' names. It does what streams were given.
func (d *Device) Counters() []Counter {
	d.drain()
	var list []Counter
	for _, name := range slices.Sorted(maps.Keys(d.counters)) {
		list = append(list, *d.counters[name])
	}
	return list
}

// ResetCounters begins to count anew.
func (d *Device) ResetCounters() {
	d.drain()
	d.counters = nil
}
