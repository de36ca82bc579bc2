package exec

import (
	"fmt"
	"math"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/gguf/quant"
)

// packUnit is about how many bytes of a weight are packed before their pages in the file are given
// back, so that no model is held twice.
const packUnit = 1 << 20

// A packing is one weight on its way into the layout that its products read.
type packing struct {
	name     string
	src, dst []byte
	layout   *kernel.Layout
	pack     kernel.Packer
	n, k     int
	rows     int // of a panel

	// release gives back rows in the file; nil where some step reads them there.
	release func(first, end int64)
}

// allocatePacked lays out the processor's copies of weights in other layouts, which kernels of the sets are to make.
func (e *Engine) allocatePacked(sets []string) error {
	if packed := e.plan.On(0).Memory.Packed; packed > math.MaxInt/4 {
		return fmt.Errorf("plan: needs %d bytes of packed weights: more than there is", packed)
	}
	size, at := 0, make([]int, len(e.plan.Weights))
	for i := range e.plan.Weights {
		if !e.plan.Weights[i].LiesOn(0) {
			continue
		}
		at[i] = size
		size += (int(e.plan.Weights[i].Packed) + cpu.Align - 1) / cpu.Align * cpu.Align
	}
	if size == 0 {
		return nil
	}
	memory, err := cpu.AllocateHuge(size)
	if err != nil {
		return fmt.Errorf("plan: packed weights: %w", err)
	}
	e.packed = *memory
	reads := plan.FileReads(e.plan)
	for i := range e.plan.Weights {
		w := &e.plan.Weights[i]
		if w.Layout == "" || !w.LiesOn(0) {
			continue
		}
		said, _ := plan.LookupLayout(w.Layout, w.Type) // as Verify has seen
		info, _ := quant.ByName(w.Type)                // as CheckModel has
		layout, ok := kernel.LookupLayout(w.Layout, info.Type)
		if !ok || int64(layout.Size(int(w.Dims[0]), int(w.Dims[1]))) != w.Packed {
			return fmt.Errorf("plan: weight %s: no layout %q of %s that takes %d bytes", w.Name, w.Layout, w.Type, w.Packed)
		}
		end := at[i] + int(w.Packed)
		p := packing{
			name: w.Name, layout: layout, pack: layout.Packer(sets), dst: e.packed.Data[at[i]:end:end],
			n: int(w.Dims[0]), k: int(w.Dims[1]), rows: int(said.Rows),
		}
		p.src, p.release = e.inFile(w)
		if reads[w.Name].Whole {
			p.release = nil
		}
		e.packings = append(e.packings, p)
	}
	return nil
}

// inFile returns the rows of a weight where they lie, and what gives some of them back: nothing where it is part of a
// tensor, of which others may read the rest.
func (e *Engine) inFile(w *plan.Weight) (data []byte, release func(first, end int64)) {
	if w.Type == plan.SidecarType {
		b, _ := e.beside.Weight(w.Tensor())
		if w.Part.Of != "" {
			return part(w, e.beside.Codes(b)), nil
		}
		return e.beside.Codes(b), func(first, end int64) { e.beside.ReleaseRows(b, first, end) }
	}
	t, _ := e.file.Tensor(w.Tensor())
	if w.Part.Of != "" {
		return part(w, e.file.Bytes(t)), nil
	}
	return e.file.Bytes(t), func(first, end int64) { e.file.Release(t, first, end) }
}

// pack copies the weights, each part by the worker that will read it: so it is near to it where
// memory belongs to processors.
func (e *Engine) pack() error {
	if len(e.packings) == 0 {
		return nil
	}
	workers := e.machine.Workers()
	s := make(cpu.Schedule, workers)
	for w := range s {
		s[w] = [][]kernel.Func{{func(*kernel.Run) {
			for i := range e.packings {
				e.packings[i].share(w, workers)
			}
		}}}
	}
	err := e.fault(e.machine.Run(s, kernel.Run{}))
	for i := range e.packings {
		if p := &e.packings[i]; p.release != nil { // now also the pages that two parts share
			p.release(0, int64(p.n))
		}
	}
	return err
}

// share packs a worker's share of the panels.
func (p *packing) share(worker, workers int) {
	panels := p.layout.Panels(p.n)
	step := max(packUnit*panels/len(p.src), 1)
	last := panels * (worker + 1) / workers
	for from := panels * worker / workers; from < last; from += step {
		to := min(from+step, last)
		p.pack(p.dst, p.src, p.n, p.k, from, to)
		if p.release != nil {
			p.release(int64(from*p.rows), int64(min(to*p.rows, p.n)))
		}
	}
}
