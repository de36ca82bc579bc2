// Package exec runs plans: it binds a plan to a model file and to memory, runs steps of tokens
// for any number of sequences, and keeps their caches.
//
// It runs a plan without the compiler, so it imports neither graph, ops, lower nor frontend.
package exec

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	"pesti/exec/cuda"
	"pesti/exec/plan"
	"pesti/exec/profile"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/gguf/sidecar"
)

// Options configure Open.
type Options struct {
	Threads int  // number of workers, up to the plan's bound; 0: one for each usable core
	Poison  bool // fill the arena with NaN before each step, so that tests see a stale read

	// Sidecar is the file with FP8 weights if the plan names one. It must stay open until Close.
	Sidecar *sidecar.File

	RAM cpu.RAM // limits memory use; zero means the machine's available memory

	// Driver provides the devices of a plan for CUDA, and Devices are their ordinals. If the plan
	// has more devices than Devices, the others get the ordinals after the last one, or from 0 on
	// if Devices is empty. The engine opens and closes the devices.
	Driver  cuda.Driver
	Devices []int

	// Observe, if it is set, is called with every value that the steps compute, right after the
	// step. The steps of a wave then run one after another, which changes no bit.
	Observe func(Observation)

	// ReadOrders are the orders in which one token reads weights, by type, as Tuned names them. Tune lets the
	// engine measure, before the second token and for at most 150 ms, which orders are fastest for the types
	// that ReadOrders lacks; Engine.Tuned returns them. No choice changes a bit.
	ReadOrders map[string]string
	Tune       bool

	// Profile makes every worker record when it begins and ends each step, for Engine.Profile.
	// Trace is the number of last runs whose times are kept for Engine.Trace. With false and 0,
	// steps have no overhead.
	Profile bool
	Trace   int
}

// check returns an OptionError for a number that is invalid with every plan.
func (o *Options) check() error {
	bad := func(field string, found int64, expected string) error {
		return &OptionError{field, fmt.Sprintf("%s is %d, expected %s", field, found, expected)}
	}
	switch {
	case o.Threads < 0:
		return bad("Threads", int64(o.Threads), "1 or more, or 0 for one for each usable core")
	case o.Trace < 0 || o.Trace > profile.MaxTrace:
		return bad("Trace", int64(o.Trace), fmt.Sprintf("0 to %d", profile.MaxTrace))
	case o.RAM.Total < 0:
		return bad("RAM.Total", o.RAM.Total, "0 or more")
	case o.RAM.Available < 0:
		return bad("RAM.Available", o.RAM.Available, "0 or more")
	}
	for i, ordinal := range o.Devices {
		if ordinal < 0 {
			return bad(fmt.Sprintf("Devices[%d]", i), int64(ordinal), "0 or more")
		}
	}
	return nil
}

// An Engine is a plan bound to a model file, to memory and to workers. It runs one forward pass at
// a time; its methods must not be called concurrently.
type Engine struct {
	plan    *plan.Plan
	file    *gguf.File
	sidecar *sidecar.File // nil if the plan needs none
	backend backend
	machine *cpu.Machine
	memory  cpu.Memory // arena and buffers
	packed  cpu.Memory // weights in other layouts
	poison  bool
	observe func(Observation)

	profiler *profiler // nil without Options.Profile and Options.Trace

	arenas   [][]byte // by device of the plan, for steps that run on the host
	shared   [][]byte // by ID of the plan's own buffers
	programs []program

	tokens, pos, seq, rows []int32
	logits                 []float32
	width                  int // number of logits in a row
	argmax, topIDs         []int32
	topLogits              []float32
	feedback               bool // steps can take the tokens in argmax as input
	maxTopK                int  // k of the device's top-k, 0 if it has none
	vocab                  int  // rows of the smallest table of embeddings
	ctx                    int
	sequences              []sequence
	pages                  pages
	rings                  []ring
	packings               []packing
	staged                 []stagedTable
	choices                kernel.Choices
	given                  map[quant.Type]bool // types whose order the options give
	tune                   bool                // before the second token
	tuned                  []Tuned
	passes                 int32 // counts forward passes
	batches                int32 // counts batches, including refused ones
	closed                 bool
	last                   kernel.Run
	top                    int             // k of the last pass's top-k, 0 if it returned all logits
	done                   <-chan struct{} // cancels the pass in progress; nil between passes
}

// A program is a program of the plan, bound to the workers.
type program struct {
	*plan.Program
	schedule cpu.Schedule
}

// Open verifies the plan, checks that f is its model file and that this machine has the instruction
// set and the memory for it, and binds all programs. The file must stay open until Close.
func Open(p *plan.Plan, f *gguf.File, o Options) (*Engine, error) {
	if err := checkHost(strconv.IntSize, binary.NativeEndian); err != nil {
		return nil, err
	}
	if err := plan.Verify(p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if err := CheckModel(p, f); err != nil {
		return nil, err
	}
	if err := CheckSidecar(p, o.Sidecar); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	e := &Engine{plan: p, file: f, sidecar: o.Sidecar, poison: o.Poison, observe: o.Observe, ctx: int(p.Target.Ctx)}
	e.sequences = make([]sequence, p.Target.Sequences)
	e.tune = o.Tune
	if err := e.useReadOrders(o.ReadOrders); err != nil {
		return nil, err
	}
	open := e.openProcessor
	if p.Target.Backend == plan.CUDA {
		open = e.openCUDA
	}
	if err := open(o); err != nil {
		return nil, err
	}
	return e, nil
}

// openProcessor makes this machine the engine's backend.
func (e *Engine) openProcessor(o Options) error {
	p := e.plan
	if o.Driver != nil {
		return fmt.Errorf("plan: is for the CPU (%s), expected a plan for CUDA devices; compile the model again for target cuda", p.Target.ISA)
	}
	sets, err := isa.UpTo(p.Target.ISA)
	if err != nil {
		return fmt.Errorf("plan: %w; compile the model again on this machine", err)
	}
	threads, err := e.workersFor(o)
	if err != nil {
		return err
	}
	if err := checkFit(plan.MemoryUseOf(p), o.RAM, "", "compile for a smaller context, fewer sequences or a smaller ubatch, or take a smaller model"); err != nil {
		return err
	}
	if err := errors.Join(e.allocate(), e.allocatePacked(sets)); err != nil {
		return errors.Join(err, e.free())
	}
	if o.Profile || o.Trace > 0 {
		e.profiler = newProfiler(p, threads, o.Trace)
	}
	if err := e.bind(threads, sets); err != nil {
		return errors.Join(err, e.free())
	}
	e.machine = e.newMachine(threads)
	e.backend = processor{e}
	if err := e.pack(); err != nil {
		return errors.Join(err, e.Close())
	}
	return nil
}

// workersFor returns the number of workers for the options.
func (e *Engine) workersFor(o Options) (int, error) {
	most := e.plan.Device(0).Threads
	switch threads := o.Threads; {
	case threads == 0:
		return min(most, DefaultThreads()), nil
	case threads < 1 || threads > most:
		return 0, &OptionError{"Threads", fmt.Sprintf("plan: %d threads, expected 1 to the %d that it was compiled for", threads, most)}
	}
	return o.Threads, nil
}

// Close ends the workers or closes the devices, and frees the memory. It does not close the file.
// After Close there are no logits, and Forward returns ErrEngineClosed. A second call does nothing.
func (e *Engine) Close() error {
	if e.closed {
		return nil
	}
	e.closed, e.last = true, kernel.Run{}
	return e.backend.close()
}

func (e *Engine) free() error { return errors.Join(e.memory.Free(), e.packed.Free()) }

// Plan returns the plan that the engine runs.
func (e *Engine) Plan() *plan.Plan { return e.plan }

// Threads returns the number of workers.
func (e *Engine) Threads() int { return e.backend.workers() }

// CheckModel returns an error unless f is the model that p was made for: of the same size, with
// the same digest of header and tensor directory, and with all weights of the plan. The weights
// themselves are not read.
func CheckModel(p *plan.Plan, f *gguf.File) error {
	if f.Size != p.Model.Size {
		return &kindError{ErrWrongModel, fmt.Sprintf("%s: the plan is for another model: this one has %d bytes, expected %d; compile a plan for it", f.Path, f.Size, p.Model.Size)}
	}
	sum := f.Digest()
	if found := "sha256:" + hex.EncodeToString(sum[:]); found != p.Model.HeaderDigest {
		return &kindError{ErrWrongModel, fmt.Sprintf("%s: the plan is for another model: the directory of this one is %s, expected %s; compile a plan for it", f.Path, found, p.Model.HeaderDigest)}
	}
	for i := range p.Weights {
		if p.Weights[i].Type == plan.SidecarType {
			continue
		}
		if err := checkWeight(&p.Weights[i], f); err != nil {
			return err
		}
	}
	return nil
}

// allocate allocates one range of memory for the processor's arena and for the shared buffers of
// the processor that have no memory yet.
func (e *Engine) allocate() error {
	const most = math.MaxInt / 2
	size, fits := int64(0), true
	place := func(n int64) int64 {
		at := size
		if fits = fits && n <= most-size; fits {
			size += (n + cpu.Align - 1) / cpu.Align * cpu.Align
		}
		return at
	}
	m := e.plan.Device(0).Memory
	arena := place(m.Arena)
	if e.shared == nil {
		e.shared = make([][]byte, len(e.plan.Buffers))
	}
	at := map[int]int64{} // offset by buffer ID
	for i := range e.plan.Buffers {
		if b := &e.plan.Buffers[i]; b.Device == 0 && e.shared[i] == nil {
			at[i] = place(b.Size)
		}
	}
	if !fits {
		return &kindError{ErrOutOfMemory, fmt.Sprintf("plan: needs %d bytes of arena, %d of state and %d of input and output, expected at most %d together", m.Arena, m.State, m.IO, int64(most))}
	}
	memory, err := cpu.Allocate(int(size))
	if err != nil {
		return &kindError{ErrOutOfMemory, fmt.Sprintf("plan: memory: %v", err)}
	}
	e.memory = *memory
	part := func(at, n int64) []byte { return e.memory.Data[at : at+n : at+n] }
	e.arenas = [][]byte{part(arena, m.Arena)}
	for i, from := range at {
		e.shared[i] = part(from, e.plan.Buffers[i].Size)
	}
	return nil
}
