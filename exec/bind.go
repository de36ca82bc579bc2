package exec

import (
	"fmt"
	"unsafe"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/gguf/quant"
)

// bind binds all steps of all programs for each worker.
func (e *Engine) bind(threads int, sets []string) error {
	weights, err := e.weights()
	if err != nil {
		return err
	}
	for i := range e.plan.Programs {
		g := &e.plan.Programs[i]
		s := make(cpu.Schedule, threads)
		for w := range s {
			s[w] = make([][]kernel.Func, len(g.Waves))
			for j, st := range g.Steps() {
				f, err := e.bindStep(g, st, weights, w, threads, sets)
				if err != nil {
					return fmt.Errorf("plan: program %s: %w", g.Name, err)
				}
				if e.profiler != nil {
					f = e.profiler.around(i, w, st.ID, f)
				}
				s[w][j] = append(s[w][j], f)
			}
		}
		e.programs = append(e.programs, program{g, s})
	}
	return e.bindIO()
}

func (e *Engine) bindStep(g *plan.Program, st *plan.Step, weights map[string]weight, worker, workers int, sets []string) (kernel.Func, error) {
	b := e.binding(g, st, worker, workers)
	for _, a := range st.Args {
		if a.Weight != "" {
			b.Operands[a.Role] = weights[a.Weight].operand(a.Kernel, plan.ReadsCopy(st, &a))
			continue
		}
		format, data := e.buffer(g, a.Buffer, worker)
		b.Operands[a.Role] = kernel.Operand{Format: format, Data: data}
	}
	if st.Scratch >= 0 {
		_, b.Scratch = e.buffer(g, st.Scratch, worker)
	}
	e.note(st)
	return kernel.Bind(&b, sets)
}

// binding returns the binding of a step for a worker, without its operands and scratch.
func (e *Engine) binding(g *plan.Program, st *plan.Step, worker, workers int) kernel.Binding {
	scope := e.plan.Scope(g)
	return kernel.Binding{
		Step: st, Operands: make(map[string]kernel.Operand, len(st.Args)),
		Worker: worker, Workers: workers, Ctx: e.ctx, SeqPages: int(scope.P), Choices: &e.choices,
	}
}

// note records the limits on tokens and positions that a step implies.
func (e *Engine) note(st *plan.Step) {
	if vocab := int(param(st, "vocab")); vocab > 0 && (e.vocab == 0 || vocab < e.vocab) {
		e.vocab = vocab
	}
	e.noteRing(st)
}

// buffer returns the format and the memory of a buffer. If each worker has a copy, it is that of worker.
func (e *Engine) buffer(g *plan.Program, id, worker int) (string, []byte) {
	b := e.plan.Buffer(g, id)
	if id < len(e.shared) {
		return b.Format, e.shared[id]
	}
	at, size := b.Offset, b.Size
	if b.Each {
		at, size = at+int64(worker)*b.Stride, b.Stride
	}
	return b.Format, e.arenas[b.Device][at : at+size : at+size]
}

func param(st *plan.Step, name string) int64 {
	v, _ := st.Param(name).(int64)
	return v
}

// A weight has the memory of a weight: in the file, and packed if the plan gives it a layout.
type weight struct {
	file   kernel.Operand
	packed *packing
}

// operand returns the weight as an operand with a matmul kernel ("" for none). Its data is the
// packed copy if copied is true and there is one, otherwise the data in the file.
func (w weight) operand(kernelName string, copied bool) kernel.Operand {
	o := w.file
	if copied && w.packed != nil {
		o.Layout, o.Data = w.packed.layout.Name, w.packed.dst
	}
	o.Kernel = kernelName
	return o
}

// weights returns the plan's weights by name, except shards that no step reads from the file.
func (e *Engine) weights() (map[string]weight, error) {
	weights, reads := make(map[string]weight, len(e.plan.Weights)), plan.FileReads(e.plan)
	for i := range e.plan.Weights {
		w := &e.plan.Weights[i]
		if w.Part.Of != "" && reads[w.Name] == (plan.FileRead{}) {
			continue
		}
		if w.Type == plan.SidecarType {
			o, err := e.sidecarOperand(w)
			if err != nil {
				return nil, err
			}
			weights[w.Name] = weight{file: o}
			continue
		}
		if size, ok := e.plan.StagedBytes(w, reads[w.Name]); ok {
			weights[w.Name] = weight{file: kernel.Operand{Format: w.Type, Data: e.stagedRows(w, size), Staged: true}}
			continue
		}
		t, _ := e.file.Tensor(w.Tensor())
		data := e.file.Bytes(t)
		if int64(len(data)) != t.Size {
			return nil, fmt.Errorf("%s: tensor %q: the file is closed, expected it to be open", e.file.Path, w.Name)
		}
		// Norms and biases are copied, because a file need not align their float32, and because
		// reading one in the mapping can make 2 MiB of the file resident (Linux 6.18 maps the whole
		// folio of the page cache).
		if len(t.Dims) < 2 || t.Type == quant.F32 && uintptr(unsafe.Pointer(unsafe.SliceData(data)))%4 != 0 {
			var err error
			if data, err = e.file.Copy(t); err != nil {
				return nil, err
			}
		}
		weights[w.Name] = weight{file: kernel.Operand{Format: w.Type, Data: part(w, data)}}
	}
	for i := range e.packings {
		name := e.packings[i].name
		w := weights[name]
		w.packed = &e.packings[i]
		weights[name] = w
	}
	return weights, nil
}

// bindIO sets the engine's views of the io buffers.
func (e *Engine) bindIO() error {
	ints := func(name string) []int32 { return view[int32](e.io(name)) }
	e.tokens, e.pos, e.seq, e.rows = ints("tokens"), ints("pos"), ints("seq"), ints("rows")
	if e.tokens == nil || e.vocab == 0 {
		return fmt.Errorf("plan: nothing reads io buffer %q, expected a step that embeds tokens", "tokens")
	}
	id, width, err := e.plan.Logits()
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	e.logits, e.width = view[float32](e.shared[id]), int(width)
	if e.plan.TopKSize(plan.Argmax) == 1 {
		e.argmax, e.feedback = ints(plan.Argmax), e.keepsTokens()
	}
	if k := e.plan.TopKSize(plan.TopIDs); k > 1 && k == e.plan.TopKSize(plan.TopLogits) {
		e.topIDs, e.topLogits, e.maxTopK = ints(plan.TopIDs), view[float32](e.io(plan.TopLogits)), int(k)
	}
	e.pages = newPages(ints("pages"), len(e.sequences), int(e.plan.Scope(nil).P))
	return nil
}

// keepsTokens reports whether all steps that read tokens can also read the tokens that the previous run
// left on the device.
func (e *Engine) keepsTokens() bool {
	for _, st := range e.plan.Steps() {
		sig, _ := plan.LookupKernel(st.Kernel) // Verify has checked it
		takes, kept := false, false
		for _, a := range st.Args {
			o := sig.Operand(a.Role)
			takes, kept = takes || o.Input == "tokens", kept || o.Kept != ""
		}
		if takes && !kept {
			return false
		}
	}
	return true
}

// io returns the memory of an io buffer, or nil if the plan has no such buffer.
func (e *Engine) io(name string) []byte {
	if b := e.plan.SharedBuffer(plan.IO, name); b != nil {
		return e.shared[b.ID]
	}
	return nil
}

// view returns data as elements of type T. data must be aligned.
func view[T any](data []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(zero)))
}
