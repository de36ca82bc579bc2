package exec

import (
	"errors"
	"fmt"
	"unsafe"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/cuda"
	"pesti/exec/plan"
	"pesti/gguf"
)

// checkFit returns an error if the plan needs more memory than is free on the device.
func (c *cudaDevice) checkFit(has cuda.Properties) error {
	use := plan.DeviceMemoryUse(c.backend.engine.plan, c.index)
	if use.Total() <= has.Free {
		return nil
	}
	return needs(use, " on the device", fmt.Sprintf("the free %s of the %s of %s", plan.HumanBytes(has.Free), plan.HumanBytes(has.Memory), has.Name),
		"compile for more devices, with fewer GPU layers, a shorter context, fewer sequences or a smaller ubatch, or use a smaller model")
}

// alloc allocates device memory, which free frees.
func (c *cudaDevice) alloc(bytes int64) (cuda.Ptr, error) {
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

// allocHost allocates pinned host memory, which free frees.
func (c *cudaDevice) allocHost(bytes int64) ([]byte, error) {
	b, err := c.AllocHost(int(max(bytes, 1)))
	if err != nil {
		return nil, fmt.Errorf("plan: memory: %w", err)
	}
	c.pinned = append(c.pinned, b)
	return b, nil
}

// allocate allocates arenas, states, tables and io buffers with the sizes in the plan.
func (d *cudaBackend) allocate() error {
	e := d.engine
	e.shared = make([][]byte, len(e.plan.Buffers))
	at, err := d.allocateInputs()
	if err != nil {
		return err
	}
	for i, c := range d.devices {
		if c == nil {
			continue
		}
		if err := c.allocate(at, int64(len(d.host))); err != nil {
			return d.inDevice(i, err)
		}
	}
	return d.allocateHost()
}

// allocateInputs places the input buffers one after the other, so that a single copy uploads all of them.
// It returns their offsets by buffer ID.
func (d *cudaBackend) allocateInputs() (map[int]int64, error) {
	e, size := d.engine, int64(0)
	at := map[int]int64{}
	for _, in := range plan.Inputs() {
		for i := range e.plan.Buffers {
			if b := &e.plan.Buffers[i]; b.Class == plan.IO && b.Name == in.Name {
				at[i] = size
				size += (b.Size + 3) / 4 * 4 // keep int32 aligned
			}
		}
	}
	var err error
	if d.host, err = d.anyDevice().allocHost(size); err != nil {
		return nil, err
	}
	clear(d.host)
	for i, from := range at {
		to := from + e.plan.Buffers[i].Size
		e.shared[i] = d.host[from:to:to]
	}
	return at, nil
}

// allocate allocates the buffers of the device. All devices have the inputs.
func (c *cudaDevice) allocate(inputs map[int]int64, bytes int64) error {
	e := c.backend.engine
	c.shared = make([]cuda.Ptr, len(e.plan.Buffers))
	var err error
	if c.inputs, err = c.alloc(bytes); err != nil {
		return err
	}
	if c.arena, err = c.alloc(e.plan.Device(c.index).Memory.Arena); err != nil {
		return err
	}
	for i := range e.plan.Buffers {
		b := &e.plan.Buffers[i]
		if from, ok := inputs[i]; ok {
			c.shared[i] = c.inputs + cuda.Ptr(from)
			continue
		}
		if b.Device != c.index {
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

// allocateHost allocates the memory of the host if it is a device of the plan, and the host copies of
// buffers for steps that run on the host instead of on their CUDA device. It initializes states, because a
// state is always copied as a whole.
func (d *cudaBackend) allocateHost() error {
	e := d.engine
	if e.plan.HasHost() {
		if err := e.allocate(); err != nil {
			return err
		}
	}
	if plan.Summarize(e.plan).Fallbacks == 0 {
		return nil
	}
	for i, c := range d.devices {
		if c != nil {
			e.arenas = append(e.arenas, make([]byte, e.plan.Device(i).Memory.Arena))
		}
	}
	for i := range e.plan.Buffers {
		b := &e.plan.Buffers[i]
		c := d.devices[b.Device]
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

// upload uploads the constant data to the devices: weights and tables.
func (d *cudaBackend) upload() error {
	read := plan.DeviceWeights(d.engine.plan)
	most := int64(1)
	for _, w := range read {
		most = max(most, w.Packed, w.Size)
	}
	staging, err := d.anyDevice().AllocHost(int(most))
	if err != nil {
		return fmt.Errorf("plan: memory: %w", err)
	}
	d.packers = d.engine.newMachine(UsableCores())
	defer d.packers.Close()
	for _, w := range read {
		if err == nil {
			err = d.uploadWeight(w, staging)
		}
	}
	if err == nil {
		err = d.fillTables()
	}
	return errors.Join(err, d.anyDevice().FreeHost(staging))
}

// uploadWeight packs a weight and uploads it to its devices.
func (d *cudaBackend) uploadWeight(w *plan.Weight, staging []byte) error {
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
		if c := d.devices[on]; c != nil {
			if err := c.uploadWeight(w, data, scales); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *cudaDevice) uploadWeight(w *plan.Weight, data []byte, scales []float32) error {
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
	return errors.Join(err, c.stream.Wait()) // the next weight reuses the staging memory
}

// pack converts a weight to the plan's layout in dst. Each worker packs a share of the rows.
func (d *cudaBackend) pack(w *plan.Weight, dst, src []byte) error {
	copies := func(worker, workers int) error {
		from, to := len(src)*worker/workers, len(src)*(worker+1)/workers
		copy(dst[from:to], src[from:to])
		return nil
	}
	if w.Layout != "" {
		l, ok := cuda.LookupLayout(w.Type)
		n, k := int(w.Dims[0]), int(w.Dims[1])
		if !ok || w.Layout != plan.SOA || l.Size(n, k) != len(dst) {
			return fmt.Errorf("plan: weight %s: no layout %q for type %s with %d bytes", w.Name, w.Layout, w.Type, len(dst))
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

// source returns a weight in the layout of its file, a function that releases its pages of the file, and
// the scales of its rows, or nil.
func (e *Engine) source(w *plan.Weight) (data []byte, release func(), scales []float32, err error) {
	if w.Type == plan.SidecarType {
		o, err := e.sidecarOperand(w)
		return o.Data, func() {}, o.Scales, err
	}
	t, _ := e.file.Tensor(w.Tensor()) // CheckModel has checked it
	data = e.file.Bytes(t)
	if int64(len(data)) != t.Size {
		return nil, nil, nil, fmt.Errorf("%s: tensor %q: the file is closed, expected it to be open", e.file.Path, w.Name)
	}
	return part(w, data), func() { releaseAll(e.file, t) }, nil, nil
}

// releaseAll releases the file's pages of a matrix.
func releaseAll(f *gguf.File, t *gguf.Tensor) {
	if n := len(t.Dims); n == 2 {
		f.Release(t, 0, t.Dims[n-1])
	}
}

// fillTables initializes the tables that steps read.
func (d *cudaBackend) fillTables() error {
	done := map[int]bool{} // by ID
	for _, st := range d.engine.plan.Steps() {
		if err := d.fillTablesOf(st, done); err != nil {
			return err
		}
	}
	return nil
}

func (d *cudaBackend) fillTablesOf(st *plan.Step, done map[int]bool) error {
	sig, _ := plan.LookupKernel(st.Kernel) // Verify has checked it
	for _, a := range st.Args {
		kind := sig.Operand(a.Role).Table
		if kind == "" || done[a.Buffer] {
			continue
		}
		done[a.Buffer] = true
		c, err := d.devices[st.Device], error(nil)
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

// uploadSines computes and uploads a table of sines for all positions.
func (c *cudaDevice) uploadSines(id int, r plan.Rotation) error {
	e := c.backend.engine
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

// floatBytes returns the memory of x.
func floatBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
