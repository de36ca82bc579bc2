package exec

import (
	"errors"
	"fmt"
	"sync/atomic"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/cuda"
	"pesti/exec/cuda/kernels"
	"pesti/exec/plan"
)

// graphTokens is the most tokens of a step whose launches are kept as a graph: there is one for each
// number of tokens and of rows.
const graphTokens = 8

// A device is a CUDA device as a backend. Steps whose kernel it has none for run on the host, on a
// copy of the plan's memory, between a copy of what they read and one of what they write.
type device struct {
	engine      *Engine
	driver      cuda.Driver
	card        cuda.Device
	set         kernels.Set
	stream      cuda.Stream
	interrupted atomic.Bool
	failed      bool // a run did, so that every call after it does

	arena   cuda.Ptr
	shared  []cuda.Ptr // by ID of the plan's own buffers
	host    []byte     // the buffers that the caller fills, as they lie on the device from inputs on
	inputs  cuda.Ptr
	weights map[string]cuda.Address // by name

	modules   map[string]cuda.Module // by name
	functions map[string]function    // by kernel
	programs  map[*plan.Program]*launches

	packers *cpu.Machine // while weights are brought to the device
	meter   meter        // of the engine's profiler; nil where nobody wants to know

	memory []cuda.Ptr // all that is to be freed
	pinned [][]byte
}

// A function is a kernel that may be launched with so many bytes of shared memory.
type function struct {
	cuda.Function
	shared int
}

// A launches is a program bound to a device.
type launches struct {
	steps  [][]deviceStep // by wave
	host   bool           // whether a step runs on the host
	graphs map[kernel.Run]cuda.Graph
}

// A deviceStep is one step: a binding, or where it runs on the host its function.
type deviceStep struct {
	*plan.Step
	binding *cuda.Binding
	host    kernel.Func
}

// openDevice makes a device the engine's backend.
func (e *Engine) openDevice(o Options) error {
	if o.Driver == nil {
		return fmt.Errorf("plan: is for CUDA devices from %s on, expected one to run it on: --device cuda:0, or --device virtual, which needs no GPU", e.plan.Target.ISA)
	}
	if o.Profile || o.Trace > 0 {
		e.profiler = newProfiler(e.plan, 1, o.Trace)
	}
	d := &device{engine: e, driver: o.Driver, weights: map[string]cuda.Address{},
		modules: map[string]cuda.Module{}, functions: map[string]function{}, programs: map[*plan.Program]*launches{}}
	if err := d.open(o.Device); err != nil {
		d.failed = true
		return errors.Join(err, d.close())
	}
	e.backend = d
	return nil
}

func (d *device) open(number int) (err error) {
	if d.card, err = d.driver.Open(number); err != nil {
		return err
	}
	has := d.card.Properties()
	if d.set, err = kernels.Lookup(d.engine.plan.Target.ISA, d.driver.Version(), has.Major, has.Minor); err != nil {
		return fmt.Errorf("plan: %s: %w; compile the model again with --isa, at most what the device has", has.Name, err)
	}
	if err := d.checkFit(has); err != nil {
		return err
	}
	if d.stream, err = d.card.NewStream(); err != nil {
		return err
	}
	for _, step := range []func() error{d.allocate, d.upload, d.bind} {
		if err := step(); err != nil {
			return err
		}
	}
	if d.engine.profiler != nil {
		if d.meter, err = newMeter(d.card, d.stream, d.engine.profiler); err != nil {
			return err
		}
	}
	return d.stream.Wait()
}

// bind resolves the steps of all programs, and loads their kernels for few tokens and for as many as
// there may be, so that a step finds all that it needs.
func (d *device) bind() error {
	e := d.engine
	onHost, err := e.weights()
	if err != nil {
		return err
	}
	on := d.card.Properties()
	for i := range e.plan.Programs {
		g := &e.plan.Programs[i]
		l := &launches{graphs: map[kernel.Run]cuda.Graph{}}
		for w := range g.Waves {
			var steps []deviceStep
			for k := range g.Waves[w].Steps {
				st := &g.Waves[w].Steps[k]
				bound := deviceStep{Step: st}
				if plan.OnDevice(st.Kernel) {
					e.note(st)
					bound.binding = d.bindStep(g, st, on)
					err = d.loadFor(&bound, g)
				} else {
					l.host = true
					bound.host, err = e.bindStep(g, st, onHost, 0, 1, []string{"portable"})
				}
				if err != nil {
					return fmt.Errorf("plan: program %s: %w", g.Name, err)
				}
				steps = append(steps, bound)
			}
			l.steps = append(l.steps, steps)
		}
		d.programs[g] = l
		e.programs = append(e.programs, program{Program: g})
	}
	return e.bindIO()
}

// bindStep finds the addresses of a step's operands.
func (d *device) bindStep(g *plan.Program, st *plan.Step, on cuda.Properties) *cuda.Binding {
	scope := d.engine.plan.Scope(g)
	b := &cuda.Binding{Step: st, Operands: make(map[string]cuda.Address, len(st.Args)), SeqPages: int(scope.P), On: on}
	for _, a := range st.Args {
		if a.Weight != "" {
			w := d.weights[a.Weight]
			w.Kernel = a.Kernel
			b.Operands[a.Role] = w
			continue
		}
		format, at := d.place(g, a.Buffer)
		b.Operands[a.Role] = cuda.Address{Ptr: at, Format: format}
	}
	if st.Scratch >= 0 {
		_, b.Scratch = d.place(g, st.Scratch)
	}
	return b
}

// place is the format of a buffer and where it lies.
func (d *device) place(g *plan.Program, id int) (string, cuda.Ptr) {
	if id < len(d.shared) {
		return d.engine.plan.Buffers[id].Format, d.shared[id]
	}
	b := &g.Buffers[id-len(d.shared)]
	return b.Format, d.arena + cuda.Ptr(b.Offset)
}

// loadFor loads the kernels of a step for every number of rows that kernels differ in.
func (d *device) loadFor(st *deviceStep, g *plan.Program) error {
	most := int(g.MaxT)
	if st.Rows == "R" {
		most = int(g.MaxR)
	}
	for _, m := range []int{1, 2, 4, graphTokens, graphTokens + 1, most} {
		if m > most {
			continue
		}
		calls, err := st.binding.Calls(m)
		if err != nil {
			return err
		}
		for _, c := range calls {
			if _, err := d.function(c.Kernel, c.Shared); err != nil {
				return err
			}
		}
	}
	return nil
}

// function returns a kernel that may be launched with so many bytes of shared memory.
func (d *device) function(name string, shared int) (cuda.Function, error) {
	if f, ok := d.functions[name]; ok && f.shared >= shared {
		return f.Function, nil
	}
	file, ptx, err := d.set.Module(name)
	if err != nil {
		return nil, err
	}
	m, ok := d.modules[file]
	if !ok {
		if m, err = d.card.Load(ptx); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		d.modules[file] = m
	}
	f, err := m.Function(name, shared)
	if err != nil {
		return nil, err
	}
	d.functions[name] = function{f, shared}
	return f, nil
}

// run runs a program. Steps of few tokens are captured the first time, and then replayed.
func (d *device) run(g *program, r kernel.Run) error {
	if d.meter != nil {
		return d.runMetered(g.Program, r)
	}
	l := d.programs[g.Program]
	err := d.begin()
	switch {
	case err != nil:
	case l.host || r.T > graphTokens:
		for w := range l.steps {
			for i := range l.steps[w] {
				if err == nil {
					err = d.do(g.Program, &l.steps[w][i], r)
				}
			}
		}
	default:
		err = d.replay(g.Program, l, r)
	}
	return d.end(r, err)
}

// replay runs the graph of a program for a number of tokens and rows.
func (d *device) replay(g *plan.Program, l *launches, r kernel.Run) error {
	graph, ok := l.graphs[r]
	if !ok {
		err := d.stream.Capture()
		for w := range l.steps {
			for i := range l.steps[w] {
				if err == nil {
					err = d.do(g, &l.steps[w][i], r)
				}
			}
		}
		if err != nil {
			return err
		}
		if graph, err = d.stream.EndCapture(); err != nil {
			return err
		}
		l.graphs[r] = graph
	}
	return d.stream.Replay(graph)
}

// runStep runs one step, and waits for it. The first one of a program brings the inputs, the last one
// takes the outputs.
func (d *device) runStep(g *program, wave, step int, r kernel.Run) error {
	l := d.programs[g.Program]
	var err error
	if wave == 0 && step == 0 {
		err = d.begin()
	}
	if err == nil {
		err = d.do(g.Program, &l.steps[wave][step], r)
	}
	if wave == len(l.steps)-1 && step == len(l.steps[wave])-1 {
		return d.end(r, err)
	}
	return d.wait(err)
}

// begin brings the inputs of a run to the device.
func (d *device) begin() error {
	if d.interrupted.Load() {
		return cpu.ErrInterrupted
	}
	return d.stream.Upload(d.inputs, d.host)
}

// end takes the outputs of a run from the device.
func (d *device) end(r kernel.Run, err error) error {
	if err != nil {
		return d.wait(err)
	}
	outputs, err := d.engine.outputs(r)
	for _, o := range outputs {
		data := d.engine.shared[o.id]
		err = errors.Join(err, d.stream.Download(data[:min(len(data), int(o.elems)*4)], d.shared[o.id]))
	}
	return d.wait(err)
}

// wait waits for the device. An interrupt, which makes kernels fail, is told as one.
func (d *device) wait(err error) error {
	if err == nil {
		err = d.stream.Wait()
	}
	d.failed = d.failed || err != nil
	if err != nil && d.interrupted.Load() {
		return cpu.ErrInterrupted
	}
	return err
}

// do gives the stream the launches of a step, or runs it on the host.
func (d *device) do(g *plan.Program, st *deviceStep, r kernel.Run) error {
	m := r.T
	if st.Rows == "R" {
		m = r.R
	}
	if m == 0 {
		return nil
	}
	if st.host != nil {
		return d.onHost(g, st, r)
	}
	calls, err := st.binding.Calls(m)
	if err != nil {
		return err
	}
	for _, c := range calls {
		f, err := d.function(c.Kernel, c.Shared)
		if err != nil {
			return err
		}
		if err := d.stream.Launch(cuda.Launch{Function: f, Grid: c.Grid, Block: c.Block, Shared: c.Shared, Params: c.Params}); err != nil {
			return fmt.Errorf("step %q: %w", st.Name, err)
		}
	}
	return nil
}

// onHost runs a step on the host's copy of what it reads, and takes what it writes to the device.
func (d *device) onHost(g *plan.Program, st *deviceStep, r kernel.Run) error {
	scope := d.engine.plan.Scope(g).Of(st.Step)
	scope.T, scope.R = int64(r.T), int64(r.R)
	sig, _ := plan.LookupKernel(st.Kernel) // as Verify has seen
	each := func(copies func(plan.Dir) bool, transfer func(host []byte, at cuda.Ptr) error) error {
		for _, a := range st.Args {
			dir := sig.Operand(a.Role).Dir
			if dir == plan.WeightIn || !copies(dir) {
				continue
			}
			elems, err := sig.Elems(scope, a.Role)
			if err != nil {
				return err
			}
			format, host := d.engine.buffer(g, a.Buffer, 0)
			bytes, err := sizeOf(format, elems)
			if err != nil {
				return err
			}
			if _, at := d.place(g, a.Buffer); bytes > 0 {
				if err := transfer(host[:bytes], at); err != nil {
					return err
				}
			}
		}
		return d.stream.Wait()
	}
	if err := each(plan.Dir.Reads, d.stream.Download); err != nil {
		return err
	}
	st.host(&r)
	return each(plan.Dir.Writes, func(host []byte, at cuda.Ptr) error { return d.stream.Upload(at, host) })
}

func sizeOf(format string, elems int64) (int64, error) {
	f, _ := plan.LookupFormat(format)
	return f.Size(elems)
}

func (d *device) contents(g *plan.Program, id, rows, cols int) (string, []byte, error) {
	format, at := d.place(g, id)
	bytes, err := sizeOf(format, int64(rows)*int64(cols))
	if err != nil {
		return "", nil, err
	}
	data := make([]byte, bytes)
	if bytes > 0 {
		err = d.stream.Download(data, at)
	}
	err = d.wait(err)
	if format == "q8x2" {
		data = rowByRow(data, rows, cols)
	}
	return format, data, err
}

// rowByRow turns a value in q8x2 as it is on devices, planes, scales and sums of all rows one behind
// the other, into rows.
func rowByRow(data []byte, rows, cols int) []byte {
	out, at := make([]byte, 0, len(data)), 0
	parts := []int{cols, cols, cols / 32 * 4, cols / 16 * 4} // bytes of a row in each
	for m := range rows {
		at = 0
		for _, size := range parts {
			out = append(out, data[at+m*size:][:size]...)
			at += rows * size
		}
	}
	return out
}

func (d *device) poison() error {
	if bytes := d.engine.plan.Memory.Arena; bytes > 0 {
		return d.stream.Fill(d.arena, 0xff, bytes)
	}
	return nil
}

func (d *device) workers() int { return 1 }

// An interrupter is a driver whose kernels can be ended, as those of the virtual device, which take
// long.
type interrupter interface{ Interrupt() }

func (d *device) interrupt() {
	d.interrupted.Store(true)
	if i, ok := d.driver.(interrupter); ok {
		i.Interrupt()
	}
}

// close frees all, in an order in which nothing that is in use goes first.
func (d *device) close() error {
	if d.card == nil {
		return nil
	}
	var errs []error
	for _, l := range d.programs {
		for _, g := range l.graphs {
			errs = append(errs, g.Close())
		}
	}
	if d.meter != nil {
		errs = append(errs, d.meter.close())
	}
	if d.stream != nil {
		errs = append(errs, d.stream.Close())
	}
	for _, m := range d.modules {
		errs = append(errs, m.Unload())
	}
	for _, p := range d.memory {
		errs = append(errs, d.card.Free(p))
	}
	for _, b := range d.pinned {
		errs = append(errs, d.card.FreeHost(b))
	}
	if err := d.card.Close(); err != nil && !d.failed {
		errs = append(errs, err)
	}
	if d.failed {
		return nil
	}
	return errors.Join(errs...)
}
