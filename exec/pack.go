package exec

import (
	"fmt"
	"math"
	"slices"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/gguf/quant"
)

// packUnit is the approximate number of bytes of a weight that a worker reads at a time to pack
// them.
const packUnit = 1 << 18

// A packing is the work of copying a weight into the layout that its products read.
type packing struct {
	name   string
	dst    []byte
	layout *kernel.Layout
	pack   kernel.Packer
	n, k   int
	rows   int // of a panel

	size int64                             // in the file
	read func(data []byte, at int64) error // reads bytes of the weight in the file's layout, from byte at on
}

// allocatePacked allocates the processor's packed copies of weights, and chooses packers from the
// instruction sets.
func (e *Engine) allocatePacked(sets []string) error {
	if packed := e.plan.Device(0).Memory.Packed; packed > math.MaxInt/4 {
		return fmt.Errorf("plan: needs %d bytes of packed weights: more than this machine can address", packed)
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
		return &kindError{ErrOutOfMemory, fmt.Sprintf("plan: packed weights: %v", err)}
	}
	e.packed = *memory
	for i := range e.plan.Weights {
		w := &e.plan.Weights[i]
		if w.Layout == "" || !w.LiesOn(0) {
			continue
		}
		said, _ := plan.LookupLayout(w.Layout, w.Type) // Verify has checked it
		info, _ := quant.ByName(w.Type)                // CheckModel has checked it
		layout, ok := kernel.LookupLayout(w.Layout, info.Type)
		if !ok || int64(layout.Size(int(w.Dims[0]), int(w.Dims[1]))) != w.Packed {
			return fmt.Errorf("plan: weight %s: no layout %q of %s that takes %d bytes", w.Name, w.Layout, w.Type, w.Packed)
		}
		end := at[i] + int(w.Packed)
		p := packing{
			name: w.Name, layout: layout, pack: layout.Packer(sets), dst: e.packed.Data[at[i]:end:end],
			n: int(w.Dims[0]), k: int(w.Dims[1]), rows: int(said.Rows),
		}
		p.size, p.read = e.reader(w)
		e.packings = append(e.packings, p)
	}
	return nil
}

// inFile returns the bytes of a weight: a view of the mapped file, or a copy if the weight is a
// range of columns.
func (e *Engine) inFile(w *plan.Weight) []byte {
	if w.Type == plan.SidecarType {
		b, _ := e.sidecar.Weight(w.Tensor())
		return part(w, e.sidecar.Codes(b))
	}
	t, _ := e.file.Tensor(w.Tensor())
	return part(w, e.file.Bytes(t))
}

// reader returns the size of a weight in its file, and a function that reads it. A tensor is read
// in pieces instead of through the mapping: mapped pages would hold all of it in memory a second
// time, and the system need not reclaim pages that the process has released.
func (e *Engine) reader(w *plan.Weight) (size int64, read func(data []byte, at int64) error) {
	if w.Part.Of != "" {
		data := e.inFile(w)
		return int64(len(data)), func(p []byte, at int64) error {
			copy(p, data[at:])
			return nil
		}
	}
	if w.Type == plan.SidecarType {
		b, _ := e.sidecar.Weight(w.Tensor())
		return b.Rows * b.Cols, func(p []byte, at int64) error { return e.sidecar.ReadCodes(b, p, at) }
	}
	t, _ := e.file.Tensor(w.Tensor())
	return t.Size, func(p []byte, at int64) error { return e.file.ReadAt(t, p, at) }
}

// pack copies the weights, each part by the worker that will read it, so that on a NUMA machine it
// is in that worker's memory.
func (e *Engine) pack() error {
	if len(e.packings) == 0 {
		return nil
	}
	workers := e.machine.Workers()
	s, errs := make(cpu.Schedule, workers), make([]error, workers)
	for w := range s {
		s[w] = [][]kernel.Func{{func(*kernel.Run) {
			var buffer []byte
			for i := range e.packings {
				if errs[w] == nil {
					buffer, errs[w] = e.packings[i].share(w, workers, buffer)
				}
			}
		}}}
	}
	if err := e.fault(e.machine.Run(nil, s, kernel.Run{})); err != nil {
		return err
	}
	for _, err := range errs {
		if err != nil { // the first worker's error; the others mostly have the same cause
			return err
		}
	}
	return nil
}

// share packs a worker's share of the panels, and returns the buffer that it read them into.
func (p *packing) share(worker, workers int, buffer []byte) ([]byte, error) {
	panels := p.layout.Panels(p.n)
	row, panel := int(p.size)/p.n, len(p.dst)/panels
	step := max(packUnit/(row*p.rows), 1)
	last := panels * (worker + 1) / workers
	for from := panels * worker / workers; from < last; from += step {
		to := min(from+step, last)
		first, end := from*p.rows, min(to*p.rows, p.n)
		buffer = slices.Grow(buffer[:0], (end-first)*row)[:(end-first)*row]
		if err := p.read(buffer, int64(first*row)); err != nil {
			return buffer, err
		}
		p.pack(p.dst[from*panel:to*panel], buffer, end-first, p.k, 0, to-from)
	}
	return buffer, nil
}
