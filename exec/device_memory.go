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

// checkFit refuses a plan that needs more memory than is free on the card.
func (c *card) checkFit(has cuda.Properties) error {
	p, h := c.device.engine.plan, plan.HumanBytes
	weights := int64(0)
	for _, w := range plan.DeviceWeights(p) {
		if w.LiesOn(c.place) {
			weights += w.DeviceBytes()
		}
	}
	m := p.Device(c.place).Memory
	all := float64(weights) + float64(m.State) + float64(m.Arena) + float64(m.IO) + float64(m.Tables) // which may exceed an int64
	if all <= float64(has.Free) {
		return nil
	}
	return fmt.Errorf("plan: needs %s of memory on the device (weights %s, KV cache %s, arena %s, input and output %s, tables %s), expected at most the %s that are free of the %s of %s; compile for more --devices, with fewer --gpu-layers, a smaller --ctx, --sequences or --ubatch, or take a smaller model",
		h(int64(min(all, math.MaxInt64/2))), h(weights), h(m.State), h(m.Arena), h(m.IO), h(m.Tables), h(has.Free), h(has.Memory), has.Name)
}

// alloc returns memory of the card that free gives back.
func (c *card) alloc(bytes int64) (cuda.Ptr, error) {
	if bytes == 0 {
		return 0, nil
	}
	p, err := c.Alloc(bytes)
	if err != nil {
		return 0, fmt.Errorf("plan: %s on the device: %w", plan.HumanBytes(bytes), err)
	}
	c.memory = append(c.memory, p)
	return p, nil
}

// allocHost returns memory of the host that free gives back.
func (c *card) allocHost(bytes int64) ([]byte, error) {
	b, err := c.AllocHost(int(max(bytes, 1)))
	if err != nil {
		return nil, fmt.Errorf("plan: memory: %w", err)
	}
	c.pinned = append(c.pinned, b)
	return b, nil
}

// allocate takes memory for arenas, states, tables and io buffers: as much as the plan says.
func (d *device) allocate() error {
	e := d.engine
	e.shared = make([][]byte, len(e.plan.Buffers))
	at, err := d.allocateInputs()
	if err != nil {
		return err
	}
	for i, c := range d.cards {
		if c == nil {
			continue
		}
		if err := c.allocate(at, int64(len(d.host))); err != nil {
			return d.about(i, err)
		}
	}
	return d.allocateHost()
}

// allocateInputs lays the buffers that the caller fills one behind the other, so that one copy brings
// them all to a card, and returns where each is, by its ID.
func (d *device) allocateInputs() (map[int]int64, error) {
	e, size := d.engine, int64(0)
	at := map[int]int64{}
	for _, in := range plan.Inputs() {
		for i := range e.plan.Buffers {
			if b := &e.plan.Buffers[i]; b.Class == plan.IO && b.Name == in.Name {
				at[i] = size
				size += (b.Size + 3) / 4 * 4 // they hold integers
			}
		}
	}
	var err error
	if d.host, err = d.any().allocHost(size); err != nil {
		return nil, err
	}
	clear(d.host)
	for i, from := range at {
		to := from + e.plan.Buffers[i].Size
		e.shared[i] = d.host[from:to:to]
	}
	return at, nil
}

// allocate takes memory for what lies on the card. Inputs lie on all.
func (c *card) allocate(inputs map[int]int64, bytes int64) error {
	e := c.device.engine
	c.shared = make([]cuda.Ptr, len(e.plan.Buffers))
	var err error
	if c.inputs, err = c.alloc(bytes); err != nil {
		return err
	}
	if c.arena, err = c.alloc(e.plan.Device(c.place).Memory.Arena); err != nil {
		return err
	}
	for i := range e.plan.Buffers {
		b := &e.plan.Buffers[i]
		if from, ok := inputs[i]; ok {
			c.shared[i] = c.inputs + cuda.Ptr(from)
			continue
		}
		if b.Device != c.place {
			continue
		}
		if c.shared[i], err = c.alloc(b.Size); err != nil {
			return err
		}
		if b.Class == plan.IO {
			if e.shared[i], err = c.allocHost(b.Size); err != nil {
				return err
			}
		}
	}
	return nil
}

// allocateHost gives the host its memory, and steps of cards that run on the host memory of their own, and
// states that hold something, since all of one is copied.
func (d *device) allocateHost() error {
	e := d.engine
	if e.plan.HasHost() {
		if err := e.allocate(); err != nil {
			return err
		}
	}
	if plan.Summarise(e.plan).Fallbacks == 0 {
		return nil
	}
	for i, c := range d.cards {
		if c != nil {
			e.arenas = append(e.arenas, make([]byte, e.plan.Device(i).Memory.Arena))
		}
	}
	for i := range e.plan.Buffers {
		b := &e.plan.Buffers[i]
		c := d.cards[b.Device]
		if b.Class != plan.State || c == nil {
			continue
		}
		e.shared[i] = make([]byte, b.Size)
		if err := c.stream.Fill(c.shared[i], 0, b.Size); err != nil {
			return err
		}
	}
	return nil
}

// upload brings what does not change to the cards: weights and tables.
func (d *device) upload() error {
	read := plan.DeviceWeights(d.engine.plan)
	most := int64(1)
	for _, w := range read {
		most = max(most, w.Packed, w.Size)
	}
	staging, err := d.any().AllocHost(int(most))
	if err != nil {
		return fmt.Errorf("plan: memory: %w", err)
	}
	d.packers = d.engine.newMachine(runtime.GOMAXPROCS(0))
	defer d.packers.Close()
	for _, w := range read {
		if err == nil {
			err = d.uploadWeight(w, staging)
		}
	}
	if err == nil {
		err = d.fillTables()
	}
	return errors.Join(err, d.any().FreeHost(staging))
}

// uploadWeight packs a weight and brings it to the cards that have it.
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
	for _, on := range w.DeviceIDs() {
		if c := d.cards[on]; c != nil {
			if err := c.uploadWeight(w, data, scales); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *card) uploadWeight(w *plan.Weight, data []byte, scales []float32) error {
	a := cuda.Address{Format: w.Type, Rows: int(w.Dims[0])}
	var err error
	if a.Ptr, err = c.alloc(int64(len(data))); err != nil {
		return err
	}
	err = c.stream.Upload(a.Ptr, data)
	if err == nil && scales != nil {
		if a.Scales, err = c.alloc(int64(4 * len(scales))); err == nil {
			err = c.stream.Upload(a.Scales, floatBytes(scales))
		}
	}
	c.weights[w.Name] = a
	return errors.Join(err, c.stream.Wait()) // the next one takes the same memory
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
	return errors.Join(append(errs, d.engine.fault(d.packers.Run(nil, s, kernel.Run{})))...)
}

// source returns a weight as it lies in its file, how to give its pages there back, and the scales of
// its rows, where it has any.
func (e *Engine) source(w *plan.Weight) (data []byte, release func(), scales []float32, err error) {
	if w.Type == plan.SidecarType {
		o, err := e.besideOperand(w)
		return o.Data, func() {}, o.Scales, err
	}
	t, _ := e.file.Tensor(w.Tensor()) // as CheckModel has seen
	data = e.file.Bytes(t)
	if int64(len(data)) != t.Size {
		return nil, nil, nil, fmt.Errorf("%s: tensor %q: the file is closed, expected it to be open", e.file.Path, w.Name)
	}
	return part(w, data), func() { releaseAll(e.file, t) }, nil, nil
}

// releaseAll gives the pages of a matrix back.
func releaseAll(f *gguf.File, t *gguf.Tensor) {
	if n := len(t.Dims); n == 2 {
		f.Release(t, 0, t.Dims[n-1])
	}
}

// fillTables makes each table what the steps that read it take it for.
func (d *device) fillTables() error {
	done := map[int]bool{} // by ID
	for i := range d.engine.plan.Programs {
		for _, wave := range d.engine.plan.Programs[i].Waves {
			for j := range wave.Steps {
				if err := d.fillTablesOf(&wave.Steps[j], done); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (d *device) fillTablesOf(st *plan.Step, done map[int]bool) error {
	sig, _ := plan.LookupKernel(st.Kernel) // as Verify has seen
	for _, a := range st.Args {
		kind := sig.Operand(a.Role).Table
		if kind == "" || done[a.Buffer] {
			continue
		}
		done[a.Buffer] = true
		c, err := d.cards[st.Device], error(nil)
		if kind == plan.Counters {
			err = c.stream.Fill(c.shared[a.Buffer], 0, d.engine.plan.Buffers[a.Buffer].Size)
		} else {
			err = c.uploadSines(a.Buffer, plan.RotationOf(st))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// uploadSines computes a table of sines for all positions and brings it to the card.
func (c *card) uploadSines(id int, r plan.Rotation) error {
	e := c.device.engine
	var freqs []float32
	if r.Freqs != "" {
		weights, err := e.weights()
		if err != nil {
			return err
		}
		freqs = view[float32](weights[r.Freqs].file.Data)
	}
	table := make([]byte, e.plan.Buffers[id].Size)
	cuda.Sines(table, r, freqs)
	return errors.Join(c.stream.Upload(c.shared[id], table), c.stream.Wait())
}

// floatBytes is the memory of numbers.
func floatBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
