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

// graphTokens is the most tokens of a step whose launches are kept as a graph: there is one for each
// number of tokens and of rows.
const graphTokens = 8

// A device is the CUDA devices of a plan as a backend. Steps whose kernel a device has none for run on
// the host, on a copy of the plan's memory, between a copy of what they read and one of what they write.
type device struct {
	engine *Engine
	driver cuda.Driver
	cards  []*card // by their number in the plan; nil for the host
	links  map[[2]int]*link
	failed error // of the first run that failed, after which the devices take no other

	host     []byte // the buffers that the caller fills, as they lie on each device
	programs map[*plan.Program]*launches

	packers *cpu.Machine // while weights are brought to the devices
	meter   meter        // of the engine's profiler; nil where nobody wants to know
}

// A launches is a program bound to devices.
type launches struct {
	steps  [][]deviceStep // by wave
	stages []stage
	host   bool // whether a step runs on the host
}

// A deviceStep is one step: a binding, or where its card has no kernel for it the host's function, or where
// the host is its device the shares of the workers, or none of these where it brings a value to another device.
type deviceStep struct {
	*plan.Step
	card    *card
	binding *cuda.Binding
	host    kernel.Func
	shares  []kernel.Func
}

// openDevice makes a device the engine's backend.
func (e *Engine) openDevice(o Options) error {
	if o.Driver == nil {
		return fmt.Errorf("plan: is for CUDA devices from %s on, expected one to run it on: --device cuda:0, or --device virtual, which needs no GPU", e.plan.Target.ISA)
	}
	if o.Profile || o.Trace > 0 {
		if n := len(e.plan.Devices); n > 0 {
			return fmt.Errorf("plan: is for %d devices, of which there is no profile; expected one for one device", n)
		}
		e.profiler = newProfiler(e.plan, 1, o.Trace)
	}
	d := &device{engine: e, driver: o.Driver, links: map[[2]int]*link{}, programs: map[*plan.Program]*launches{}}
	if err := d.open(o); err != nil {
		return errors.Join(err, d.close())
	}
	e.backend = d
	return nil
}

// DeviceNumbers are the numbers of the n devices of a plan of which the first are given: behind those each is
// the next that is not given itself.
func DeviceNumbers(given []int, n int) []int {
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
func (d *device) open(o Options) error {
	numbers := DeviceNumbers(o.Devices, d.engine.plan.NumGPUs())
	for i := range d.engine.plan.NumDevices() {
		if i == 0 && d.engine.plan.HasHost() {
			d.cards = append(d.cards, nil)
			continue
		}
		number := numbers[0]
		numbers = numbers[1:]
		c := &card{device: d, place: i, weights: map[string]cuda.Address{}, modules: map[string]cuda.Module{}, functions: map[string]function{}}
		d.cards = append(d.cards, c)
		if err := c.open(number); err != nil {
			return d.about(i, err)
		}
	}
	sets, err := d.openHost(o)
	if err != nil {
		return d.about(0, err)
	}
	for _, step := range []func() error{d.allocate, d.upload, d.link, func() error { return d.packHost(sets) }, func() error { return d.bind(sets) }} {
		if err := step(); err != nil {
			return err
		}
	}
	if d.engine.profiler != nil {
		if d.meter, err = newMeter(d.cards[0].Device, d.cards[0].stream, d.engine.profiler); err != nil {
			return err
		}
	}
	return d.waitAll()
}

// about says in an error which device it is about, where there are several.
func (d *device) about(place int, err error) error {
	if err == nil || len(d.engine.plan.Devices) == 0 {
		return err
	}
	return fmt.Errorf("device %d of the plan: %w", place, err)
}

// bind resolves the steps of all programs, and loads their kernels for few tokens and for as many as
// there may be, so that a step finds all that it needs.
func (d *device) bind(sets []string) error {
	e := d.engine
	onHost, err := e.weights()
	if err != nil {
		return err
	}
	for i := range e.plan.Programs {
		g := &e.plan.Programs[i]
		l := &launches{}
		for w := range g.Waves {
			var steps []deviceStep
			for k := range g.Waves[w].Steps {
				st := &g.Waves[w].Steps[k]
				bound := deviceStep{Step: st, card: d.cards[st.Device]}
				switch {
				case plan.IsTransfer(st.Kernel):
				case bound.card == nil:
					bound.shares, err = d.shares(g, st, onHost, sets)
				case plan.IsCUDAKernel(st.Kernel):
					e.note(st)
					bound.binding = bound.card.bindStep(g, st)
					err = bound.card.loadFor(&bound, g)
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
		l.stages = stagesOf(l.steps, len(d.cards))
		d.programs[g] = l
		e.programs = append(e.programs, program{Program: g})
	}
	return e.bindIO()
}

// run runs a program. Steps of few tokens are captured the first time, and then replayed.
func (d *device) run(g *program, r kernel.Run) error {
	if d.meter != nil && !d.engine.profiler.paused {
		return d.runMetered(g.Program, r)
	}
	l := d.programs[g.Program]
	err := d.begin()
	for i := range l.stages {
		st := &l.stages[i]
		switch {
		case err != nil:
		case d.engine.cancelled():
			err = cpu.ErrCancelled
		case st.host != nil:
			err = d.engine.machine.Run(d.engine.done, st.host, r)
		case l.host || r.T > graphTokens || st.card == nil:
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

// replay runs the graph of a stage for a number of tokens and rows.
func (d *device) replay(g *plan.Program, st *stage, r kernel.Run) error {
	stream := st.card.stream
	key := replayed{r, d.engine.top}
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

// capture makes the graph of a stage. On an error the stream does not capture any more.
func (d *device) capture(g *plan.Program, st *stage, r kernel.Run) (cuda.Graph, error) {
	stream := st.card.stream
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

// begin brings the inputs of a run to the devices.
func (d *device) begin() error {
	if d.failed != nil {
		return d.failed
	}
	if d.engine.cancelled() {
		return cpu.ErrCancelled
	}
	for _, c := range d.cards {
		if c == nil {
			continue
		}
		if err := c.stream.Upload(c.inputs, d.host); err != nil {
			return err
		}
	}
	return nil
}

// end takes the outputs of a run from the devices.
func (d *device) end(r kernel.Run, err error) error {
	if err != nil {
		return d.wait(err)
	}
	outputs, err := d.engine.outputs(r)
	for _, o := range outputs {
		data, c := d.engine.shared[o.id], d.cards[d.engine.plan.Buffers[o.id].Device]
		if c == nil {
			continue
		}
		err = errors.Join(err, c.stream.Download(data[:min(len(data), int(o.elems)*4)], c.shared[o.id]))
	}
	return d.wait(err)
}

func (d *device) fetch(r kernel.Run) error { return d.end(r, nil) }

// wait waits for the devices and returns err, or where that is nil their error. Where the pass was
// cancelled and nothing failed, it returns cpu.ErrCancelled.
func (d *device) wait(err error) error {
	cancelled := errors.Is(err, cpu.ErrCancelled)
	if err == nil || cancelled {
		err = d.waitAll()
	}
	if err == nil && (cancelled || d.engine.cancelled()) {
		return cpu.ErrCancelled
	}
	if d.failed == nil {
		d.failed = err
	}
	return err
}

// waitAll waits for all devices. That a device skipped work because the pass is cancelled is no error here.
func (d *device) waitAll() (first error) {
	for i, c := range d.cards {
		if c == nil || c.stream == nil {
			continue
		}
		if err := c.stream.Wait(); err != nil && !errors.Is(err, cuda.ErrCancelled) && first == nil {
			first = d.about(i, err)
		}
	}
	return first
}

// do gives the stream the launches of a step, or runs it on the host.
func (d *device) do(g *plan.Program, st *deviceStep, r kernel.Run) error {
	m := r.T
	if st.Rows == "R" {
		m = r.R
	}
	if m == 0 || d.engine.idle(st.Step) {
		return nil
	}
	switch {
	case st.host != nil:
		return d.onHost(g, st, r)
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
		f, err := st.card.function(c.Kernel, c.Shared)
		if err != nil {
			return err
		}
		if err := st.card.stream.Launch(cuda.Launch{Function: f, Grid: c.Grid, Block: c.Block, Shared: c.Shared, Params: c.Params}); err != nil {
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
			if _, at := st.card.placeOf(g, a.Buffer); bytes > 0 {
				if err := transfer(host[:bytes], at); err != nil {
					return err
				}
			}
		}
		return st.card.stream.Wait()
	}
	if err := each(plan.Dir.Reads, st.card.stream.Download); err != nil {
		return err
	}
	st.host(&r)
	return each(plan.Dir.Writes, func(host []byte, at cuda.Ptr) error { return st.card.stream.Upload(at, host) })
}

func sizeOf(format string, elems int64) (int64, error) {
	f, _ := plan.LookupFormat(format)
	return f.Size(elems)
}

func (d *device) contents(g *plan.Program, id, rows, cols int) (string, []byte, error) {
	c := d.cards[d.engine.bufferOf(g, id).Device]
	if c == nil {
		format, data := d.engine.buffer(g, id, 0)
		return format, data, nil
	}
	format, at := c.placeOf(g, id)
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
	for i, c := range d.cards {
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

func (d *device) cancelOn(done <-chan struct{}) {
	if c, ok := d.driver.(cuda.Canceller); ok {
		c.CancelOn(done)
	}
}

func (d *device) workers() int {
	if m := d.engine.machine; m != nil {
		return m.Workers()
	}
	return 1
}

// close frees all, in an order in which nothing that is in use goes first. A device on which a kernel failed
// has no more to say: it fails all calls with that error, which the run has told.
func (d *device) close() error {
	var errs []error
	broken := d.waitAll() != nil
	for _, l := range d.programs {
		for i := range l.stages {
			for _, g := range l.stages[i].graphs {
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
	for _, c := range d.cards {
		errs = append(errs, c.free())
	}
	for _, c := range d.cards { // when none reads another's memory
		errs = append(errs, c.close())
	}
	errs = append(errs, d.closeHost())
	if broken {
		return nil
	}
	return errors.Join(errs...)
}
