package plan

import (
	"fmt"
	"slices"
)

// ArenaAlign is the alignment in bytes of every arena buffer and of every worker's copy: the size
// of a cache line and of the widest vector.
const ArenaAlign = 64

// maxDims is the largest rank of a GGUF tensor.
const maxDims = 4

// MaxThreads and maxSequences bound the memory that a plan costs in addition to its buffers.
const (
	MaxThreads   = 1 << 10
	maxSequences = 1 << 16
)

// ISAs are the instruction sets that a plan may name. The executor checks that the machine has it.
var ISAs = []string{"portable", "avx2", "avx512vnni", "amx", "neondot"}

// CUDA is the backend of CUDA devices. CUDAISAs are its instruction sets: the compute capabilities
// that have kernels. A device runs the kernels of earlier capabilities too.
const CUDA = "cuda"

var CUDAISAs = []string{"sm_75", "sm_80", "sm_89"}

// Verify checks that a plan is safe to run. Its parts must agree. No step may access memory outside
// its buffers, read a value that no step wrote, or race with another step of its wave. No two
// buffers may overlap in both time and address. Verify does not depend on how a plan was made, and
// takes a few milliseconds. An error names the program and the step or buffer.
//
// The executor checks the rest: the model file has these weights, tokens are in the vocabulary,
// positions in the context, sequences and rows in their ranges.
func Verify(p *Plan) error {
	v := &verifier{
		plan: p, weights: make(map[string]*Weight, len(p.Weights)),
		signatures: make(map[string]*Signature, len(kernels)), states: map[int]stateShape{}, tables: map[int]tableShape{},
	}
	for i := range kernels {
		v.signatures[kernels[i].Name] = &kernels[i]
	}
	for _, check := range []func() error{v.target, v.devices, v.weightList, v.shared, v.programs, v.memory, v.fusions} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

type verifier struct {
	plan       *Plan
	weights    map[string]*Weight
	signatures map[string]*Signature

	readWeights map[readOn]bool
	readPacked  map[string]bool
	states      map[int]stateShape // by buffer ID: the layout that the first step to use it expects
	tables      map[int]tableShape // by buffer ID: the contents that the first step to use it expects
	arena       [][]arenaUse       // by program and device
	busy        []bool             // by device: whether it runs a step
}

// A readOn is a weight with a device whose steps read it.
type readOn struct {
	weight string
	device int
}

func oneOf(what, found string, expected ...string) error {
	if slices.Contains(expected, found) {
		return nil
	}
	return fmt.Errorf("%s is %q, expected one of %q", what, found, expected)
}

func atLeast(what string, found, least int64) error {
	if found < least {
		return fmt.Errorf("%s is %d, expected at least %d", what, found, least)
	}
	return nil
}

// atMost returns an error if a number exceeds a bound.
func atMost(what string, found, most int64) error {
	if found > most {
		return fmt.Errorf("%s is %d, expected at most %d", what, found, most)
	}
	return nil
}

// first returns the first error of a list.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) target() error {
	p, t := v.plan, &v.plan.Target
	if p.Version != Version {
		return fmt.Errorf("version is %d, expected %d", p.Version, Version)
	}
	if t.Threads > MaxThreads {
		return fmt.Errorf("target: threads is %d, expected at most %d", t.Threads, MaxThreads)
	}
	if t.Sequences > maxSequences {
		return fmt.Errorf("target: sequences is %d, expected at most %d", t.Sequences, maxSequences)
	}
	isas := ISAs
	if t.Backend == CUDA {
		isas = CUDAISAs
		if t.Threads != 1 {
			return fmt.Errorf("target: threads is %d, expected 1 on a CUDA device", t.Threads)
		}
	}
	return first(
		oneOf("target: backend", t.Backend, "cpu", CUDA),
		oneOf("target: instruction set", t.ISA, isas...),
		atLeast("model: size", p.Model.Size, 1),
		oneOf("target: precision", t.Precision, "exact", "fast"),
		oneOf("target: kv", t.KV, cacheFormats...),
		atLeast("target: threads", int64(t.Threads), 1),
		atLeast("target: ctx", t.Ctx, 1),
		atLeast("target: ubatch", t.Ubatch, 1),
		atLeast("target: sequences", t.Sequences, 1),
		atLeast("target: rows", t.Rows, 1),
	)
}

func (v *verifier) weightList() error {
	for i := range v.plan.Weights {
		w := &v.plan.Weights[i]
		if v.weights[w.Name] != nil {
			return fmt.Errorf("weight %s: listed twice, expected once", w.Name)
		}
		v.weights[w.Name] = w
		if len(w.Dims) > maxDims {
			return fmt.Errorf("weight %s: %d dims, expected 1 to %d", w.Name, len(w.Dims), maxDims)
		}
		if w.Type == "" || len(w.Dims) == 0 || slices.Min(w.Dims) < 1 || w.Size < 1 {
			return fmt.Errorf("weight %s: type %q, dims %v, size %d, expected a type, positive dims and a positive size", w.Name, w.Type, w.Dims, w.Size)
		}
		if err := first(checkPacked(w), checkPart(w)); err != nil {
			return fmt.Errorf("weight %s: %w", w.Name, err)
		}
	}
	return v.sidecar()
}

// sidecar checks that a plan names a sidecar if and only if it has weights of SidecarType.
func (v *verifier) sidecar() error {
	s := &v.plan.Sidecar
	at := slices.IndexFunc(v.plan.Weights, func(w Weight) bool { return w.Type == SidecarType })
	switch {
	case at < 0 && *s != (Sidecar{}):
		return fmt.Errorf("sidecar: no weight is %s, expected one, or no line for a sidecar", SidecarType)
	case at >= 0 && s.Size < 1:
		return fmt.Errorf("weight %s: is %s, which no model file has, and the plan names no sidecar", v.plan.Weights[at].Name, SidecarType)
	}
	return nil
}

// checkPacked checks the size of a weight's copy in another layout.
func checkPacked(w *Weight) error {
	if w.Layout == "" {
		if w.Packed != 0 {
			return fmt.Errorf("packed is %d, expected 0 without a layout", w.Packed)
		}
		return nil
	}
	l, ok := LookupLayout(w.Layout, w.Type)
	if !ok {
		return fmt.Errorf("layout is %q, expected a layout of %s", w.Layout, w.Type)
	}
	if len(w.Dims) != 2 {
		return fmt.Errorf("layout is %s of dims %v, expected rows and their length", w.Layout, w.Dims)
	}
	size, err := l.Size(w.Dims[0], w.Dims[1])
	if err != nil {
		return err
	}
	if w.Packed != size {
		return fmt.Errorf("packed is %d, expected %d in layout %s", w.Packed, size, w.Layout)
	}
	return nil
}

// shared checks the states and io buffers.
func (v *verifier) shared() error {
	names := map[string]bool{}
	scope := v.plan.Scope(nil)
	for i := range v.plan.Buffers {
		b := &v.plan.Buffers[i]
		where := bufferName(b)
		if b.ID != i {
			return fmt.Errorf("%s: expected id b%d", where, i)
		}
		if b.Class != State && b.Class != IO && b.Class != Table {
			return fmt.Errorf("%s: class is %q, expected state, io or table outside a program", where, b.Class)
		}
		if names[b.Name] {
			return fmt.Errorf("%s: name used twice, expected names of states and io buffers to differ", where)
		}
		names[b.Name] = true
		if err := v.exists(b.Device); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if b.Device != 0 && inputOf(b) != nil {
			return fmt.Errorf("%s: is on device %d, expected no device: inputs are copied to all devices", where, b.Device)
		}
		if b.Each || b.Stride != 0 || b.Offset != 0 || b.First != 0 || b.Last != 0 {
			return fmt.Errorf("%s: has an offset, a stride or a lifetime, expected none outside the arena", where)
		}
		if b.Class == Table && v.plan.Device(b.Device).Backend != CUDA {
			return fmt.Errorf("%s: class is %q, expected state or io on the processor, whose kernels read no tables", where, b.Class)
		}
		if b.Class == State && b.Format != v.plan.Target.KV {
			return fmt.Errorf("%s: format is %s, expected the target's %s", where, b.Format, v.plan.Target.KV)
		}
		elems, bytes, err := scope.extent(b)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if elems < 1 || b.Size < bytes {
			return fmt.Errorf("%s: size is %d, expected at least %d for %s (at least one) of %s", where, b.Size, bytes, b.Elems, b.Format)
		}
		if in := inputOf(b); in != nil {
			if want, _ := scope.Eval(in.Elems); b.Format != in.Format || elems < want {
				return fmt.Errorf("%s: %s of %s, expected %s of %s: the caller fills it", where, b.Elems, b.Format, in.Elems, in.Format)
			}
		}
	}
	_, _, err := v.plan.Logits()
	return err
}

// extent returns the elements and the bytes of one copy of a buffer.
func (s *Scope) extent(b *Buffer) (elems, bytes int64, err error) {
	f, ok := LookupFormat(b.Format)
	if !ok {
		return 0, 0, fmt.Errorf("format is %q, expected one of the element formats", b.Format)
	}
	if elems, err = s.Eval(b.Elems); err != nil {
		return 0, 0, err
	}
	bytes, err = f.Size(elems)
	return elems, bytes, err
}

func bufferName(b *Buffer) string { return fmt.Sprintf("buffer b%d %q", b.ID, b.Name) }

func (v *verifier) programs() error {
	p := v.plan
	if len(p.Programs) == 0 {
		return fmt.Errorf("no programs, expected at least one")
	}
	v.readWeights = make(map[readOn]bool, len(p.Weights))
	v.busy = make([]bool, p.NumDevices())
	v.readPacked = make(map[string]bool, len(p.Weights))
	names := map[string]bool{}
	var covered int64
	chunked := ""
	for i := range p.Programs {
		g := &p.Programs[i]
		if g.Name == "" || names[g.Name] {
			return fmt.Errorf("program %q: expected a name of its own", g.Name)
		}
		names[g.Name] = true
		if g.Chunk != 0 {
			if chunked != "" {
				return fmt.Errorf("program %s: has a chunk, as %s does, expected one such program at most", g.Name, chunked)
			}
			chunked = g.Name
		}
		if err := checkTokens(g, &covered, p.Target.Ubatch); err != nil {
			return fmt.Errorf("program %s: %w", g.Name, err)
		}
		if g.MaxR < 1 || g.MaxR > p.Target.Rows {
			return fmt.Errorf("program %s: for %d rows, expected from 1 to the target's %d", g.Name, g.MaxR, p.Target.Rows)
		}
		use, err := newChecker(v, g).run()
		if err != nil {
			return fmt.Errorf("program %s: %w", g.Name, err)
		}
		v.arena = append(v.arena, use)
	}
	if covered != p.Target.Ubatch {
		return fmt.Errorf("programs are for up to %d tokens, expected the last one without a chunk to reach ubatch %d", covered, p.Target.Ubatch)
	}
	for i := range p.Weights {
		w := &p.Weights[i]
		for _, d := range w.DeviceIDs() {
			if !v.readWeights[readOn{w.Name, d}] {
				return fmt.Errorf("weight %s: no step%s reads it, expected one", w.Name, v.where(d))
			}
		}
		if w.Layout != "" && !v.readPacked[w.Name] {
			return fmt.Errorf("weight %s: no product reads it in layout %s, expected one", w.Name, w.Layout)
		}
	}
	if d := slices.Index(v.busy, false); d >= 0 {
		return fmt.Errorf("device %d: runs no step, expected one", d)
	}
	return nil
}

// where returns " on device N" for a plan with several devices, else "".
func (v *verifier) where(device int) string {
	if len(v.plan.Devices) == 0 {
		return ""
	}
	return fmt.Sprintf(" on device %d", device)
}

// checkTokens checks the range of tokens of a program. A program without a chunk begins after the
// last one without a chunk, which ended at covered.
func checkTokens(g *Program, covered *int64, ubatch int64) error {
	switch {
	case g.Chunk < 0 || g.Chunk > ubatch:
		return fmt.Errorf("chunk is %d, expected 1 to ubatch %d, or none", g.Chunk, ubatch)
	case g.Chunk > 0 && (g.MinT != g.Chunk || g.MaxT < g.MinT || g.MaxT%g.Chunk != 0 || g.MaxT > ubatch):
		return fmt.Errorf("for %d to %d tokens, expected from one chunk of %d to a multiple of it, up to ubatch %d at most", g.MinT, g.MaxT, g.Chunk, ubatch)
	case g.Chunk > 0:
		return nil
	case g.MinT != *covered+1 || g.MaxT < g.MinT || g.MaxT > ubatch:
		return fmt.Errorf("for %d to %d tokens, expected a range from %d, up to ubatch %d at most", g.MinT, g.MaxT, *covered+1, ubatch)
	}
	*covered = g.MaxT
	return nil
}

// memory recomputes the sums of the memory line and of the device lines, and compares them.
func (v *verifier) memory() error {
	arenas := make([]Memory, v.plan.NumDevices())
	for d := range arenas {
		m := &arenas[d]
		for _, program := range v.arena {
			u := program[d]
			m.Arena = max(m.Arena, u.end)
			m.ArenaLowerBound = max(m.ArenaLowerBound, u.peak)
			m.ArenaUnshared = max(m.ArenaUnshared, u.unshared)
		}
	}
	want := *v.plan
	want.Devices = slices.Clone(want.Devices)
	if err := want.Sum(arenas); err != nil {
		return err
	}
	for d := range want.Devices {
		if err := sameMemory(&v.plan.Devices[d].Memory, &want.Devices[d].Memory); err != nil {
			return fmt.Errorf("device %d: %w", d, err)
		}
	}
	return sameMemory(&v.plan.Memory, &want.Memory)
}

// add adds bytes to a sum.
func add(to *int64, bytes int64) error {
	if *to > maxInt-bytes {
		return fmt.Errorf("memory: sizes add up to more than %d bytes", maxInt)
	}
	*to += bytes
	return nil
}

func sameMemory(got, want *Memory) error {
	expected := want.fields()
	for i, f := range got.fields() {
		if *f.bytes != *expected[i].bytes {
			return fmt.Errorf("memory: %s is %d, expected the sum %d", f.name, *f.bytes, *expected[i].bytes)
		}
	}
	return nil
}

func (v *verifier) fusions() error {
	if got, want := v.plan.Fusions, CountFusions(v.plan); got != want {
		return fmt.Errorf("fusions: %+v, expected the counts of the last program, %+v", got, want)
	}
	return nil
}

// CountFusions counts the fused kernels of the largest program, by kind.
func CountFusions(p *Plan) Fusions {
	var f Fusions
	if len(p.Programs) == 0 {
		return f
	}
	last := &p.Programs[len(p.Programs)-1]
	for _, st := range last.Steps() {
		switch st.Kernel {
		case "matmul_group", "cuda.gemv", "cuda.gemm":
			if slices.ContainsFunc(st.Args, func(a Arg) bool { return a.Role == "w2" }) {
				f.QKV++
			}
		case "gated_mlp", "cuda.gated_mlp", "cuda.gemm_gated_mlp":
			f.GatedMLP++
		case "attention", "cuda.attention", "cuda.prefill":
			f.Attention++
		}
	}
	return f
}
