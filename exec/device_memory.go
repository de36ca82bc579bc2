package exec

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/cuda"
	"pesti/exec/plan"
	"pesti/gguf"
)

// deviceAlign is the alignment of buffers that lie in one allocation of a device.
const deviceAlign = 256

func aligned(n int64) int64 { return (n + deviceAlign - 1) / deviceAlign * deviceAlign }

// checkFit refuses a plan that needs more memory than is free on the device.
func (d *device) checkFit(has cuda.Properties) error {
	p, h := d.engine.plan, plan.HumanBytes
	weights := int64(0)
	for _, w := range d.readOnDevice() {
		weights += max(w.Packed, w.Size)
	}
	tables := int64(d.counters()) * 4
	for r := range d.rotations() {
		tables += int64(r.Size(d.engine.ctx))
	}
	m := &p.Memory
	all := float64(weights) + float64(m.State) + float64(m.Arena) + float64(m.IO) + float64(tables) // which may exceed an int64
	if all <= float64(has.Free) {
		return nil
	}
	return fmt.Errorf("plan: needs %s of memory on the device (weights %s, KV cache %s, arena %s, input and output %s, tables %s), expected at most the %s that are free of the %s of %s; compile with a smaller --ctx, --sequences or --ubatch, or take a smaller model",
		h(int64(min(all, math.MaxInt64/2))), h(weights), h(m.State), h(m.Arena), h(m.IO), h(tables), h(has.Free), h(has.Memory), has.Name)
}

// deviceSteps calls f with each step that runs on the device.
func (d *device) deviceSteps(f func(*plan.Step)) {
	for i := range d.engine.plan.Programs {
		for _, wave := range d.engine.plan.Programs[i].Waves {
			for j := range wave.Steps {
				if st := &wave.Steps[j]; plan.OnDevice(st.Kernel) {
					f(st)
				}
			}
		}
	}
}

// readOnDevice are the weights that steps on the device read, in the plan's order.
func (d *device) readOnDevice() []*plan.Weight {
	names := map[string]bool{}
	d.deviceSteps(func(st *plan.Step) {
		for _, a := range st.Args {
			names[a.Weight] = true
		}
	})
	var list []*plan.Weight
	for i := range d.engine.plan.Weights {
		if w := &d.engine.plan.Weights[i]; names[w.Name] {
			list = append(list, w)
		}
	}
	return list
}

// rotations are the tables that attention steps need.
func (d *device) rotations() map[cuda.Rope]bool {
	ropes := map[cuda.Rope]bool{}
	d.deviceSteps(func(st *plan.Step) {
		if hasRope(st) {
			ropes[cuda.RopeOf(st)] = true
		}
	})
	return ropes
}

// hasRope reports whether a step turns heads by a table.
func hasRope(st *plan.Step) bool {
	return plan.OnDevice(st.Kernel) && param(st, "kv_heads") > 0 && param(st, "rot") > 0
}

// counters is how many of them attention needs: one for each token and head of keys.
func (d *device) counters() int {
	heads := int64(1)
	d.deviceSteps(func(st *plan.Step) { heads = max(heads, param(st, "kv_heads")) })
	return int(heads * d.engine.plan.Target.Ubatch)
}

// alloc returns memory of the device that close frees.
func (d *device) alloc(bytes int64) (cuda.Ptr, error) {
	p, err := d.card.Alloc(max(bytes, 1))
	if err != nil {
		return 0, fmt.Errorf("plan: %s on the device: %w", plan.HumanBytes(bytes), err)
	}
	d.memory = append(d.memory, p)
	return p, nil
}

// allocHost returns memory of the host that close frees.
func (d *device) allocHost(bytes int64) ([]byte, error) {
	b, err := d.card.AllocHost(int(max(bytes, 1)))
	if err == nil {
		d.pinned = append(d.pinned, b)
	}
	return b, err
}

// allocate lays out arena, states and io buffers. Those that the caller fills come first, so that
// one copy brings them all.
func (d *device) allocate() error {
	e := d.engine
	inputs := map[string]bool{}
	for _, in := range plan.Inputs() {
		inputs[in.Name] = true
	}
	at, size := make([]int64, len(e.plan.Buffers)), int64(0)
	for _, filled := range []bool{true, false} {
		for i := range e.plan.Buffers {
			if b := &e.plan.Buffers[i]; b.Class == plan.IO && inputs[b.Name] == filled {
				at[i] = size
				size += aligned(b.Size)
			}
		}
		if filled {
			d.inputs = int(size)
		}
	}
	var err error
	if d.host, err = d.allocHost(size); err != nil {
		return fmt.Errorf("plan: memory: %w", err)
	}
	clear(d.host)
	if d.ios, err = d.alloc(size); err != nil {
		return err
	}
	if d.arena, err = d.alloc(e.plan.Memory.Arena); err != nil {
		return err
	}
	d.shared, e.shared = make([]cuda.Ptr, len(at)), make([][]byte, len(at))
	for i := range e.plan.Buffers {
		b := &e.plan.Buffers[i]
		if b.Class == plan.IO {
			d.shared[i], e.shared[i] = d.ios+cuda.Ptr(at[i]), d.host[at[i]:at[i]+b.Size:at[i]+b.Size]
			continue
		}
		if d.shared[i], err = d.alloc(b.Size); err != nil {
			return err
		}
	}
	return d.allocateHost()
}

// allocateHost gives steps that run on the host memory of their own, and states that hold something,
// since all of one is copied.
func (d *device) allocateHost() error {
	e := d.engine
	if plan.Summarise(e.plan).Fallbacks == 0 {
		return nil
	}
	e.arena = make([]byte, e.plan.Memory.Arena)
	for i := range e.plan.Buffers {
		if b := &e.plan.Buffers[i]; b.Class == plan.State {
			e.shared[i] = make([]byte, b.Size)
			if err := d.stream.Fill(d.shared[i], 0, b.Size); err != nil {
				return err
			}
		}
	}
	return nil
}

// upload brings what does not change to the device: weights, tables of sines, and counters.
func (d *device) upload() error {
	var err error
	counters := int64(d.counters()) * 4
	if d.arrived, err = d.alloc(counters); err != nil {
		return err
	}
	if err := d.stream.Fill(d.arrived, 0, counters); err != nil {
		return err
	}
	read := d.readOnDevice()
	most := int64(1)
	for _, w := range read {
		most = max(most, w.Packed, w.Size)
	}
	staging, err := d.card.AllocHost(int(most))
	if err != nil {
		return fmt.Errorf("plan: memory: %w", err)
	}
	d.packers = cpu.New(runtime.GOMAXPROCS(0))
	defer d.packers.Close()
	for _, w := range read {
		if err == nil {
			err = d.uploadWeight(w, staging)
		}
	}
	for r := range d.rotations() {
		if err == nil {
			err = d.uploadRope(r)
		}
	}
	return errors.Join(err, d.card.FreeHost(staging))
}

// uploadWeight packs a weight and brings it to the device.
func (d *device) uploadWeight(w *plan.Weight, staging []byte) error {
	src, release, scales, err := d.engine.source(w)
	if err != nil {
		return err
	}
	data := staging[:w.Size]
	if w.Layout != "" {
		data = staging[:w.Packed]
	}
	if err := d.pack(w, data, src); err != nil {
		return err
	}
	release()
	a := cuda.Address{Format: w.Type, Rows: int(w.Dims[0])}
	if a.Ptr, err = d.alloc(int64(len(data))); err != nil {
		return err
	}
	err = d.stream.Upload(a.Ptr, data)
	if err == nil && scales != nil {
		if a.Scales, err = d.alloc(int64(4 * len(scales))); err == nil {
			err = d.stream.Upload(a.Scales, floatBytes(scales))
		}
	}
	d.weights[w.Name] = a
	return errors.Join(err, d.stream.Wait()) // the next one takes the same memory
}

// pack brings a weight from its file to dst, in the plan's layout, each worker a share of its rows.
func (d *device) pack(w *plan.Weight, dst, src []byte) error {
	copies := func(worker, workers int) error {
		from, to := len(src)*worker/workers, len(src)*(worker+1)/workers
		copy(dst[from:to], src[from:to])
		return nil
	}
	if w.Layout != "" {
		l, ok := cuda.LookupLayout(w.Type)
		n, k := int(w.Dims[0]), int(w.Dims[1])
		if !ok || w.Layout != plan.SOA || l.Size(n, k) != len(dst) {
			return fmt.Errorf("plan: weight %s: no layout %q of %s that takes %d bytes", w.Name, w.Layout, w.Type, len(dst))
		}
		copies = func(worker, workers int) error {
			return l.Pack(dst, src, n, k, n*worker/workers, n*(worker+1)/workers)
		}
	}
	s := make(cpu.Schedule, d.packers.Workers())
	errs := make([]error, len(s))
	for i := range s {
		s[i] = [][]kernel.Func{{func(*kernel.Run) { errs[i] = copies(i, len(s)) }}}
	}
	return errors.Join(append(errs, d.engine.fault(d.packers.Run(s, kernel.Run{})))...)
}

// source returns a weight as it lies in its file, how to give its pages there back, and the scales of
// its rows, where it has any.
func (e *Engine) source(w *plan.Weight) (data []byte, release func(), scales []float32, err error) {
	if w.Type == plan.SidecarType {
		o, err := e.besideOperand(w)
		return o.Data, func() {}, o.Scales, err
	}
	t, _ := e.file.Tensor(w.Name) // as CheckModel has seen
	data = e.file.Bytes(t)
	if int64(len(data)) != w.Size {
		return nil, nil, nil, fmt.Errorf("%s: tensor %q: the file is closed, expected it to be open", e.file.Path, w.Name)
	}
	return data, func() { releaseAll(e.file, t) }, nil, nil
}

// releaseAll gives the pages of a matrix back.
func releaseAll(f *gguf.File, t *gguf.Tensor) {
	if n := len(t.Dims); n == 2 {
		f.Release(t, 0, t.Dims[n-1])
	}
}

// uploadRope computes a table of sines for all positions and brings it to the device.
func (d *device) uploadRope(r cuda.Rope) error {
	var freqs []float32
	if r.Freqs != "" {
		weights, err := d.engine.weights()
		if err != nil {
			return err
		}
		freqs = view[float32](weights[r.Freqs].file.Data)
	}
	table := make([]byte, r.Size(d.engine.ctx))
	r.Table(table, d.engine.ctx, freqs)
	at, err := d.alloc(int64(len(table)))
	if err != nil {
		return err
	}
	d.ropes[r] = at
	return errors.Join(d.stream.Upload(at, table), d.stream.Wait())
}

// floatBytes is the memory of numbers.
func floatBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
