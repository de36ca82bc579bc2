package exec

import (
	"errors"
	"fmt"
	"slices"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/cuda"
	"pesti/exec/plan"
)

// graphTokens is the largest number of tokens of a step whose launches are captured as a CUDA graph. There
// is a graph for each number of tokens and rows.
const graphTokens = 8

// A cudaBackend runs a plan on its CUDA devices. A step without a CUDA kernel runs on the host, in host
// copies of the plan's buffers: its inputs are copied from the device before, and its outputs back after.
type cudaBackend struct {
	engine  *Engine
	driver  cuda.Driver
	devices []*cudaDevice // by device index of the plan; nil for the host
	links   map[[2]int]*peerLink
	failed  error // error of the first failed run, after which the devices accept no other

	host     []byte // the input buffers, in the layout that they have on each device
	programs map[*plan.Program]*boundProgram

	packers *cpu.Machine // while weights are uploaded
	meter   meter        // of the engine's profiler, or nil
}

// A boundProgram is a program bound to devices.
type boundProgram struct {
	steps    [][]deviceStep // by wave
	segments []segment
	host     bool // whether a step runs on the host
}

// A deviceStep is a bound step. It has one of: binding, for a kernel on a CUDA device; host, for a step of a
// CUDA device without a kernel there; shares, one per worker, for a step whose device is the host. A
// transfer between devices has none of them.
type deviceStep struct {
	*plan.Step
	dev     *cudaDevice
	binding *cuda.Binding
	host    kernel.Func
	shares  []kernel.Func
}

// openCUDA opens the devices of the plan and makes them the engine's backend.
func (e *Engine) openCUDA(o Options) error {
	if o.Driver == nil {
		return fmt.Errorf("plan: is for CUDA devices from %s on, expected a device to run it on: cuda:0, or virtual, which needs no GPU", e.plan.Target.ISA)
	}
	if o.Profile || o.Trace > 0 {
		if n := len(e.plan.Devices); n > 0 {
			return fmt.Errorf("plan: is for %d devices, expected a plan for one device, because profiles support no others", n)
		}
		e.profiler = newProfiler(e.plan, 1, o.Trace)
	}
	d := &cudaBackend{engine: e, driver: o.Driver, links: map[[2]int]*peerLink{}, programs: map[*plan.Program]*boundProgram{}}
	if err := d.open(o); err != nil {
		return errors.Join(refusedMemory(err), d.close())
	}
	e.backend = d
	return nil
}

// DeviceOrdinals returns n device ordinals: the given ones, and then the ordinals that follow the last one,
// without those already used.
func DeviceOrdinals(given []int, n int) []int {
	numbers := slices.Clone(given[:min(len(given), n)])
	for last := -1; len(numbers) < n; {
		if len(numbers) > 0 {
			last = numbers[len(numbers)-1]
		}
		for last++; slices.Contains(numbers, last); {
			last++
		}
		numbers = append(numbers, last)
	}
	return numbers
}

// open opens the devices of the plan.
func (d *cudaBackend) open(o Options) error {
	numbers := DeviceOrdinals(o.Devices, d.engine.plan.NumGPUs())
	for i := range d.engine.plan.NumDevices() {
		if i == 0 && d.engine.plan.HasHost() {
			d.devices = append(d.devices, nil)
			continue
		}
		number := numbers[0]
		numbers = numbers[1:]
		c := &cudaDevice{backend: d, index: i, weights: map[string]cuda.Address{}, modules: map[string]cuda.Module{}, functions: map[string]function{}}
		d.devices = append(d.devices, c)
		if err := c.open(number); err != nil {
			return d.inDevice(i, err)
		}
	}
	sets, err := d.openHost(o)
	if err != nil {
		return d.inDevice(0, err)
	}
	for _, step := range []func() error{d.allocate, d.upload, d.openLinks, func() error { return d.packHost(sets) }, func() error { return d.bind(sets) }} {
		if err := step(); err != nil {
			return err
		}
	}
	if d.engine.profiler != nil {
		if d.meter, err = newMeter(d.devices[0].Device, d.devices[0].stream, d.engine.profiler); err != nil {
			return err
		}
	}
	return d.waitAll()
}

// inDevice adds the device of the plan to an error, if there are several.
func (d *cudaBackend) inDevice(place int, err error) error {
	if err == nil || len(d.engine.plan.Devices) == 0 {
		return err
	}
	return fmt.Errorf("device %d of the plan: %w", place, err)
}

// bind binds the steps of all programs and loads all kernels that they may need for any number of tokens.
func (d *cudaBackend) bind(sets []string) error {
	e := d.engine
	onHost, err := e.weights()
	if err != nil {
		return err
	}
	for i := range e.plan.Programs {
		g := &e.plan.Programs[i]
		l := &boundProgram{}
		for w := range g.Waves {
			var steps []deviceStep
			for k := range g.Waves[w].Steps {
				st := &g.Waves[w].Steps[k]
				bound := deviceStep{Step: st, dev: d.devices[st.Device]}
				switch {
				case plan.IsTransfer(st.Kernel):
				case bound.dev == nil:
					bound.shares, err = d.shares(g, st, onHost, sets)
				case plan.IsCUDAKernel(st.Kernel):
					e.note(st)
					bound.binding = bound.dev.bindStep(g, st)
					err = bound.dev.loadFor(&bound, g)
				default:
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
		l.segments = segmentsOf(l.steps, len(d.devices))
		d.programs[g] = l
		e.programs = append(e.programs, program{Program: g})
	}
	return e.bindIO()
}

// run runs a program. Segments of steps with few tokens are captured the first time and then replayed.
func (d *cudaBackend) run(g *program, r kernel.Run) error {
	if d.meter != nil && !d.engine.profiler.paused {
		return d.runProfiled(g.Program, r)
	}
	l := d.programs[g.Program]
	err := d.begin()
	for i := range l.segments {
		st := &l.segments[i]
		switch {
		case err != nil:
		case d.engine.canceled():
			err = cpu.ErrCanceled
		case st.host != nil:
			err = d.engine.machine.Run(d.engine.done, st.host, r)
		case l.host || r.T > graphTokens || st.dev == nil:
			for _, step := range st.steps {
				if err == nil {
					err = d.do(g.Program, step, r)
				}
			}
		default:
			err = d.replay(g.Program, st, r)
		}
	}
	return d.end(r, err)
}

// replay runs the graph of a segment for a number of tokens and rows, which it captures if there is none.
func (d *cudaBackend) replay(g *plan.Program, st *segment, r kernel.Run) error {
	stream := st.dev.stream
	key := graphKey{r, d.engine.top}
	graph, ok := st.graphs[key]
	if !ok {
		var err error
		if graph, err = d.capture(g, st, r); err != nil {
			return err
		}
		st.graphs[key] = graph
	}
	return stream.Replay(graph)
}

// capture captures the launches of a segment. Also after an error, the stream no longer captures.
func (d *cudaBackend) capture(g *plan.Program, st *segment, r kernel.Run) (cuda.Graph, error) {
	stream := st.dev.stream
	if err := stream.Capture(); err != nil {
		return nil, err
	}
	var err error
	for _, step := range st.steps {
		if err == nil {
			err = d.do(g, step, r)
		}
	}
	graph, ended := stream.EndCapture()
	switch {
	case err == nil:
		return graph, ended
	case ended == nil:
		err = errors.Join(err, graph.Close())
	}
	return nil, err
}

// runStep runs one step and waits for it. The first step of a program uploads the inputs, the last one
// downloads the outputs.
func (d *cudaBackend) runStep(g *program, wave, step int, r kernel.Run) error {
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

// begin uploads the inputs of a run to the devices.
func (d *cudaBackend) begin() error {
	if d.failed != nil {
		return d.failed
	}
	if d.engine.canceled() {
		return cpu.ErrCanceled
	}
	for _, c := range d.devices {
		if c == nil {
			continue
		}
		if err := c.stream.Upload(c.inputs, d.host); err != nil {
			return err
		}
	}
	return nil
}

// end downloads the outputs of a run from the devices and waits.
func (d *cudaBackend) end(r kernel.Run, err error) error {
	if err != nil {
		return d.wait(err)
	}
	outputs, err := d.engine.outputs(r)
	for _, o := range outputs {
		data, c := d.engine.shared[o.id], d.devices[d.engine.plan.Buffers[o.id].Device]
		if c == nil {
			continue
		}
		err = errors.Join(err, c.stream.Download(data[:min(len(data), int(o.elems)*4)], c.shared[o.id]))
	}
	return d.wait(err)
}

func (d *cudaBackend) fetch(r kernel.Run) error { return d.end(r, nil) }

// wait waits for the devices and returns err, or the devices' error if err is nil. If the pass was
// canceled and nothing failed, it returns cpu.ErrCanceled.
func (d *cudaBackend) wait(err error) error {
	canceled := errors.Is(err, cpu.ErrCanceled)
	if err == nil || canceled {
		err = d.waitAll()
	}
	if err == nil && (canceled || d.engine.canceled()) {
		return cpu.ErrCanceled
	}
	err = refusedMemory(err)
	if d.failed == nil {
		d.failed = err
	}
	return err
}

// refusedMemory makes an error ErrOutOfMemory if a device refused memory.
func refusedMemory(err error) error {
	if errors.Is(err, cuda.ErrOutOfMemory) {
		return &memoryError{err}
	}
	return err
}

// waitAll waits for all devices. It returns no error for work that a device skipped because the
// pass was canceled.
func (d *cudaBackend) waitAll() (first error) {
	for i, c := range d.devices {
		if c == nil || c.stream == nil {
			continue
		}
		if err := c.stream.Wait(); err != nil && !errors.Is(err, cuda.ErrCanceled) && first == nil {
			first = d.inDevice(i, err)
		}
	}
	return first
}

// do launches a step on its device's stream, or runs it on the host.
func (d *cudaBackend) do(g *plan.Program, st *deviceStep, r kernel.Run) error {
	m := r.T
	if st.Rows == "R" {
		m = r.R
	}
	if m == 0 || d.engine.idle(st.Step) {
		return nil
	}
	switch {
	case st.host != nil:
		return d.runOnHost(g, st, r)
	case st.shares != nil:
		return d.engine.machine.Run(d.engine.done, alone(st.shares), r)
	case st.binding == nil:
		return d.transfer(g, st, r)
	}
	calls, err := st.binding.Calls(m)
	if err != nil {
		return err
	}
	for _, c := range calls {
		f, err := st.dev.function(c.Kernel, c.Shared)
		if err != nil {
			return err
		}
		if err := st.dev.stream.Launch(cuda.Launch{Function: f, Grid: c.Grid, Block: c.Block, Shared: c.Shared, Params: c.Params}); err != nil {
			return fmt.Errorf("step %q: %w", st.Name, err)
		}
	}
	return nil
}

// runOnHost runs a step of a CUDA device on the host: it downloads the inputs and uploads the outputs.
func (d *cudaBackend) runOnHost(g *plan.Program, st *deviceStep, r kernel.Run) error {
	scope := d.engine.plan.Scope(g).Of(st.Step)
	scope.T, scope.R = int64(r.T), int64(r.R)
	sig, _ := plan.LookupKernel(st.Kernel) // Verify has checked it
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
			if _, at := st.dev.addressOf(g, a.Buffer); bytes > 0 {
				if err := transfer(host[:bytes], at); err != nil {
					return err
				}
			}
		}
		return st.dev.stream.Wait()
	}
	if err := each(plan.Dir.Reads, st.dev.stream.Download); err != nil {
		return err
	}
	st.host(&r)
	return each(plan.Dir.Writes, func(host []byte, at cuda.Ptr) error { return st.dev.stream.Upload(at, host) })
}

func sizeOf(format string, elems int64) (int64, error) {
	f, _ := plan.LookupFormat(format)
	return f.Size(elems)
}

func (d *cudaBackend) contents(g *plan.Program, id, rows, cols int) (string, []byte, error) {
	c := d.devices[d.engine.plan.Buffer(g, id).Device]
	if c == nil {
		format, data := d.engine.buffer(g, id, 0)
		return format, data, nil
	}
	format, at := c.addressOf(g, id)
	bytes, err := sizeOf(format, int64(rows)*int64(cols))
	if err != nil {
		return "", nil, err
	}
	data := make([]byte, bytes)
	if bytes > 0 {
		err = c.stream.Download(data, at)
	}
	err = d.wait(err)
	if format == "q8x2" {
		data = rowByRow(data, rows, cols)
	}
	return format, data, err
}

// rowByRow converts a q8x2 value from the device layout, with the planes, scales and sums of all rows as
// separate arrays, to the row layout of the CPU.
func rowByRow(data []byte, rows, cols int) []byte {
	out, at := make([]byte, 0, len(data)), 0
	parts := []int{cols, cols, cols / 32 * 4, cols / 16 * 4} // bytes of a row in each array
	for m := range rows {
		at = 0
		for _, size := range parts {
			out = append(out, data[at+m*size:][:size]...)
			at += rows * size
		}
	}
	return out
}

func (d *cudaBackend) poison() error {
	for i, c := range d.devices {
		if c == nil {
			d.engine.poisonArena()
			continue
		}
		if bytes := d.engine.plan.Device(i).Memory.Arena; bytes > 0 {
			if err := c.stream.Fill(c.arena, 0xff, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *cudaBackend) cancelOn(done <-chan struct{}) {
	if c, ok := d.driver.(cuda.Canceller); ok {
		c.CancelOn(done)
	}
}

func (d *cudaBackend) workers() int {
	if m := d.engine.machine; m != nil {
		return m.Workers()
	}
	return 1
}

// close frees everything, users of a resource before the resource. If a kernel failed, it returns no error:
// all calls fail with the error of the kernel, which the run has already returned.
func (d *cudaBackend) close() error {
	var errs []error
	broken := d.waitAll() != nil
	for _, l := range d.programs {
		for i := range l.segments {
			for _, g := range l.segments[i].graphs {
				errs = append(errs, g.Close())
			}
		}
	}
	if d.meter != nil {
		errs = append(errs, d.meter.close())
	}
	for _, l := range d.links {
		errs = append(errs, l.close())
	}
	for _, c := range d.devices {
		errs = append(errs, c.free())
	}
	for _, c := range d.devices { // after all streams that may access another device's memory
		errs = append(errs, c.close())
	}
	errs = append(errs, d.closeHost())
	if broken {
		return nil
	}
	return errors.Join(errs...)
}
