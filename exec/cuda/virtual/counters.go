package virtual

import (
	"maps"
	"slices"

	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual/ptx"
)

// traffic returns the traffic of a space.
func (g *group) traffic(s space) *cuda.Traffic {
	c := &g.counts
	switch s {
	case sharedSpace:
		return &c.Shared
	case localSpace:
		return &c.Local
	case paramSpace:
		return &c.Constant
	}
	return &c.Global
}

// A tally counts the warps and the threads that have executed a basic block.
type tally struct{ warps, threads int64 }

// counted returns the counts of the group.
func (g *group) counted() *cuda.Counts {
	c := &g.counts
	for i, n := range g.tallies {
		w := &g.program.blocks[i].work
		c.Instructions.Add(&w.classes, n.warps)
		c.Threads += w.instructions * n.threads
		c.Flops += w.flops * n.threads
		c.DotOps += w.dotOps * n.threads
		c.TensorInts += w.tensorInts * n.warps
		c.TensorFloats += w.tensorFloats * n.warps
	}
	return c
}

// work is the work of a basic block: flops and dotOps per thread, the rest per warp.
type work struct {
	instructions int64 // in all
	classes      cuda.Instructions
	flops        int64
	dotOps       int64
	tensorInts   int64
	tensorFloats int64
}

// flopsOf has the float operations of a thread by opcode.
var flopsOf = map[string]int64{"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2, "div": 1, "sqrt": 1, "rcp": 1, "rsqrt": 1, "ex2": 1, "lg2": 1, "tanh": 1, "min": 1, "max": 1}

// classOf has the class of instructions by opcode. All others are float or integer arithmetic, depending
// on the type.
var classOf = map[string]cuda.Class{
	"dp4a": cuda.Dot, "dp2a": cuda.Dot, "mma": cuda.Tensor,
	"ld": cuda.Memory, "ldu": cuda.Memory, "st": cuda.Memory, "atom": cuda.Memory, "red": cuda.Memory, "cp": cuda.Memory,
	"ldmatrix": cuda.Memory, "prefetch": cuda.Memory, "prefetchu": cuda.Memory,
	"cvt": cuda.Convert,
	"bra": cuda.Control, "brx": cuda.Control, "ret": cuda.Control, "exit": cuda.Control, "bar": cuda.Control, "barrier": cuda.Control,
	"membar": cuda.Control, "fence": cuda.Control, "trap": cuda.Control, "nanosleep": cuda.Control,
	"shfl": cuda.Exchange, "vote": cuda.Exchange, "redux": cuda.Exchange, "activemask": cuda.Exchange,
	"mov": cuda.Move, "cvta": cuda.Move,
}

// floatsIn has the number of floats in an operand by float type.
var floatsIn = map[string]int64{"f32": 1, "f16": 1, "bf16": 1, "f64": 1, "f16x2": 2, "bf16x2": 2}

// add counts an instruction.
func (w *work) add(in *ptx.Instr) {
	w.instructions++
	class, ok := classOf[in.Op]
	if n := floatsIn[in.Type()]; !ok && n > 0 && in.Op != "selp" {
		class = cuda.Float
		w.flops += n * flopsOf[in.Op]
	} else if !ok {
		class = cuda.Integer
	}
	w.classes[class]++
	if in.Op == "dp4a" {
		w.dotOps += 8
	}
}

// counter returns the counts of a kernel.
func (d *Device) counter(kernel string) *cuda.Counts {
	if d.counters == nil {
		d.counters = map[string]*cuda.Counts{}
	}
	c := d.counters[kernel]
	if c == nil {
		c = &cuda.Counts{Kernel: kernel}
		d.counters[kernel] = c
	}
	return c
}

// Counters implements cuda.Counting. It first executes all pending operations of streams.
func (d *Device) Counters() []cuda.Counts {
	d.drain()
	var list []cuda.Counts
	for _, name := range slices.Sorted(maps.Keys(d.counters)) {
		list = append(list, *d.counters[name])
	}
	return list
}

// ResetCounters sets all counts to zero.
func (d *Device) ResetCounters() {
	d.drain()
	d.counters = nil
}
