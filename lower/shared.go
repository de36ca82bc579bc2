package lower

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/gguf/sidecar"
	"pesti/graph"
	"pesti/lower/target"
	"pesti/ops"
)

// shared are the buffers that all programs use: states and what the caller fills or reads.
type shared struct {
	io    map[string]int // buffer by name
	state map[string]stateStorage

	sines    map[plan.Rotation]int // tables of a device
	counters int
}

// A stateStorage is where one layer's keys or values are kept. A layer with a window keeps only
// window + ubatch positions, in a ring.
type stateStorage struct {
	buffer    int
	positions int64 // of each sequence, whole pages
	ring      bool
}

// newPlan fills in what is known before anything is scheduled.
func newPlan(m *frontend.Model, o *Options) *plan.Plan {
	digest := m.File.Digest()
	file := o.File
	if file != "" {
		file = filepath.ToSlash(file)
	}
	var beside plan.Sidecar
	if s := o.Sidecar; s != nil {
		beside = plan.Sidecar{File: filepath.ToSlash(o.SidecarFile), Size: s.Size, Directory: fmt.Sprintf("sha256:%x", s.Digest())}
	}
	return &plan.Plan{
		Version: plan.Version,
		Sidecar: beside,
		Model: plan.Model{
			Arch: m.Params.Arch, Name: m.Params.Name, File: file, Size: m.File.Size,
			Directory: fmt.Sprintf("sha256:%x", digest),
		},
		Target: plan.Target{
			Backend: o.Target, ISA: o.ISA, Precision: o.Precision, KV: o.KV, Threads: o.Threads,
			Ctx: o.Ctx, Ubatch: o.Ubatch, Sequences: o.Sequences, Rows: o.Rows,
		},
		Passes: o.Passes,
	}
}

// addShared appends the states and the io buffers.
func addShared(p *plan.Plan, g *graph.Graph, o *Options) (shared, error) {
	s := shared{io: map[string]int{}, state: map[string]stateStorage{}}
	for _, in := range plan.Inputs() {
		id, err := addBuffer(p, plan.IO, in.Name, in.Format, in.Elems)
		if err != nil {
			return s, err
		}
		s.io[in.Name] = id
	}
	for _, v := range g.Outputs {
		id, err := addBuffer(p, plan.IO, v.Name, string(v.Type.DType), formulaOf(v.Type))
		if err != nil {
			return s, err
		}
		s.io[v.Name] = id
	}
	for _, n := range g.Nodes {
		if n.Op == ops.Attention { // it lays a cache out by heads
			if err := o.fitsCache(n.Attr.Int("head_dim"), "head"); err != nil {
				return s, err
			}
		}
		if n.Op != ops.State {
			continue
		}
		if err := o.fitsCache(n.Attr.Int("width"), "row"); err != nil {
			return s, err
		}
		st := stateStorage{positions: wholePages(o.Ctx)}
		if window := n.Attr.Int("window"); window > 0 {
			if kept := wholePages(window + o.Ubatch); kept < st.positions {
				st.positions, st.ring = kept, true
			}
		}
		var err error
		st.buffer, err = addBuffer(p, plan.State, n.Name(), o.KV, fmt.Sprintf("S*%d*%d", st.positions, n.Attr.Int("width")))
		if err != nil {
			return s, err
		}
		s.state[n.Name()] = st
	}
	return s, nil
}

// addBuffer appends a buffer that all programs use.
func addBuffer(p *plan.Plan, class plan.Class, name, format, elems string) (int, error) {
	b := plan.Buffer{ID: len(p.Buffers), Class: class, Name: name, Format: format, Elems: elems}
	scope := p.Scope(nil)
	n, err := scope.Eval(elems)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	f, ok := plan.LookupFormat(format)
	if !ok {
		return 0, fmt.Errorf("%s: no element format %q", name, format)
	}
	if b.Size, err = f.Size(n); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	p.Buffers = append(p.Buffers, b)
	return b.ID, nil
}

// addTables appends the tables that attention reads on a device: sines for each rotation, and counters
// for each token and head of keys.
func addTables(p *plan.Plan, g *graph.Graph, o *Options, s *shared, reference bool) error {
	first := o.target.Programs(target.Bounds{Ubatch: o.Ubatch, Sequences: o.Sequences})[0]
	g, err := lowerable(g, o.target, &first, reference)
	if err != nil {
		return err
	}
	s.sines = map[plan.Rotation]int{}
	heads := int64(0)
	for _, n := range g.Nodes {
		if n.Op != ops.Attention {
			continue
		}
		if sig, ok := plan.LookupKernel(o.target.Lower(&first, n, reference).Kernel); !ok || sig.Operand("sines") == nil {
			continue
		}
		heads = max(heads, n.Attr.Int("kv_heads"))
		r := rotationOf(n)
		if _, ok := s.sines[r]; ok || r.Rot == 0 {
			continue
		}
		if s.sines[r], err = addBuffer(p, plan.Table, fmt.Sprintf("sines.%d", len(s.sines)), "f32", fmt.Sprintf("C*%d", r.Rot)); err != nil {
			return err
		}
	}
	if heads > 0 {
		s.counters, err = addBuffer(p, plan.Table, "counters", "i32", fmt.Sprintf("T*%d", heads))
	}
	return err
}

// rotationOf is the rotation that the step of an attention will have.
func rotationOf(n *graph.Node) plan.Rotation {
	anywhere := target.Env{Positions: func(*graph.Value) (int64, bool) { return 0, false }}
	st := plan.Step{Params: target.AttentionParams(n, anywhere)}
	if freqs := n.In[9]; freqs != nil {
		st.Args = []plan.Arg{{Role: "freqs", Weight: freqs.Name}}
	}
	return plan.RotationOf(&st)
}

func wholePages(positions int64) int64 {
	return (positions + plan.PageTokens - 1) / plan.PageTokens * plan.PageTokens
}

// storage is where a state lives, whichever of its versions the value is.
func (s *scheduler) storage(state *graph.Value) (positions int64, ring bool) {
	id := s.buffer[state]
	st := s.states.state[s.p.Buffers[id].Name]
	return st.positions, st.ring
}

// env is what the target's parameters need.
func (s *scheduler) env() target.Env { return target.Env{Positions: s.storage} }

// addWeights lists every weight that some step reads, in the order in which they first do.
func addWeights(p *plan.Plan, m *frontend.Model, beside *sidecar.File) error {
	layouts := map[string]string{} // in which kernels read each weight, "" for that of the file
	var names []string
	for i := range p.Programs {
		for _, w := range p.Programs[i].Waves {
			for _, st := range w.Steps {
				for _, a := range st.Args {
					if a.Weight == "" {
						continue
					}
					layout, seen := layouts[a.Weight]
					if !seen {
						names = append(names, a.Weight)
					}
					layouts[a.Weight] = cmp.Or(layout, layoutOf(&st, &a))
				}
			}
		}
	}
	for _, name := range names {
		t, ok := m.File.Tensor(name)
		if !ok {
			return fmt.Errorf("%s: tensor %s is missing", m.File.Path, name)
		}
		info, ok := quant.Lookup(t.Type)
		if !ok {
			return fmt.Errorf("%s: tensor %s has unknown type %d", m.File.Path, name, t.Type)
		}
		dims := slices.Clone(t.Dims)
		slices.Reverse(dims)
		w := plan.Weight{Name: name, Type: string(frontend.DType(info)), Dims: dims, Size: t.Size}
		if beside != nil {
			if b, ok := beside.Weight(name); ok {
				w.Type, w.Size = plan.SidecarType, b.Size()
			}
		}
		if err := pack(&w, layouts[name]); err != nil {
			return fmt.Errorf("%s: tensor %s: %w", m.File.Path, name, err)
		}
		p.Weights = append(p.Weights, w)
	}
	return nil
}

// layoutOf is the layout in which a step reads a weight: what the name of its matmul kernel says, or the
// step's kernel asks for.
func layoutOf(st *plan.Step, a *plan.Arg) string {
	if parts := strings.Split(a.Kernel, "."); len(parts) == 4 {
		return parts[2]
	}
	if sig, ok := plan.LookupKernel(st.Kernel); ok {
		return sig.Operand(a.Role).Layout
	}
	return ""
}

// pack gives a weight the layout that kernels read it in.
func pack(w *plan.Weight, layout string) error {
	if layout == "" {
		return nil
	}
	l, ok := plan.LookupLayout(layout, w.Type)
	if !ok {
		return fmt.Errorf("there is no layout %q of %s", layout, w.Type)
	}
	var err error
	w.Layout = l.Name
	w.Packed, err = l.Size(w.Dims[0], w.Dims[1])
	return err
}

// fitsCache refuses a format of caches whose blocks do not divide the elements that lie together.
func (o *Options) fitsCache(elems int64, what string) error {
	if f, _ := plan.LookupFormat(o.KV); elems%f.Elems != 0 {
		return optionErrorf("--kv is %q, expected f32, f16 or fp8, since the %d elements of a %s are no multiple of %d", o.KV, elems, what, f.Elems)
	}
	return nil
}

// beside are the operands of a step that no operand of its node stands for: the table of pages, and those
// of a device.
func (s *shared) beside(st *plan.Step, sig *plan.Signature) []plan.Arg {
	var args []plan.Arg
	r := plan.RotationOf(st)
	for _, o := range sig.Operands {
		switch {
		case o.Input == "pages":
			args = append(args, plan.Arg{Role: o.Role, Buffer: s.io["pages"]})
		case o.Table == plan.Sines && r.Rot > 0:
			args = append(args, plan.Arg{Role: o.Role, Buffer: s.sines[r]})
		case o.Table == plan.Counters:
			args = append(args, plan.Arg{Role: o.Role, Buffer: s.counters})
		}
	}
	return args
}
