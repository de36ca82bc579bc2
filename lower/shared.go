package lower

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/gguf/sidecar"
	"pesti/graph"
	"pesti/lower/cpu"
	"pesti/lower/target"
	"pesti/ops"
)

// shared holds the buffers that all programs use: states, tables and io buffers.
type shared struct {
	io    map[string]int // buffer by name
	state map[string]stateStorage

	sines    map[tableOf]int // buffer by contents
	counters []int           // buffer by device

	top int64 // k of the top-k logits on the device, 0 for none
}

// A tableOf identifies a table of sines.
type tableOf struct {
	rotation plan.Rotation
	device   int
}

// A stateStorage is the buffer of one layer's keys or values. A layer with a window keeps only
// window + ubatch positions, in a ring.
type stateStorage struct {
	buffer    int
	positions int64 // of each sequence, whole pages
	ring      bool
}

// newPlan returns a plan with the fields that do not depend on the schedule.
func newPlan(m *frontend.Model, o *Options) *plan.Plan {
	digest := m.File.Digest()
	file := o.File
	if file != "" {
		file = filepath.ToSlash(file)
	}
	var side plan.Sidecar
	if s := o.Sidecar; s != nil {
		side = plan.Sidecar{File: filepath.ToSlash(o.SidecarFile), Size: s.Size, HeaderDigest: fmt.Sprintf("sha256:%x", s.Digest())}
	}
	var devices []plan.Device
	if o.Devices > 1 || o.Host != nil {
		devices = slices.Repeat([]plan.Device{{Backend: o.Target, ISA: o.ISA, Threads: o.Threads}}, o.Devices)
	}
	if h := o.Host; h != nil {
		devices = slices.Insert(devices, 0, plan.Device{Backend: cpu.Target().Name, ISA: h.ISA, Threads: h.Threads})
	}
	return &plan.Plan{
		Version: plan.Version,
		Devices: devices,
		Sidecar: side,
		Model: plan.Model{
			Arch: m.Params.Arch, Name: m.Params.Name, File: file, Size: m.File.Size,
			HeaderDigest: fmt.Sprintf("sha256:%x", digest),
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
		id, err := addBuffer(p, plan.Buffer{Class: plan.IO, Name: in.Name, Format: in.Format, Elems: in.Elems})
		if err != nil {
			return s, err
		}
		s.io[in.Name] = id
	}
	for _, v := range g.Outputs {
		id, err := addBuffer(p, plan.Buffer{Class: plan.IO, Name: v.Name, Format: string(v.Type.DType), Elems: formulaOf(v.Type), Device: v.Def.Device})
		if err != nil {
			return s, err
		}
		s.io[v.Name] = id
	}
	if err := s.addTop(p, g, o); err != nil {
		return s, err
	}
	for _, n := range g.Nodes {
		if n.Op == ops.Attention { // its kernel groups the cache's pages by head
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
		st.buffer, err = addBuffer(p, plan.Buffer{Class: plan.State, Name: n.Name(), Format: o.KV,
			Elems: fmt.Sprintf("S*%d*%d", st.positions, n.Attr.Int("width")), Device: n.Device})
		if err != nil {
			return s, err
		}
		s.state[n.Name()] = st
	}
	return s, nil
}

// addBuffer appends a buffer that all programs use, and sets its ID and its size.
func addBuffer(p *plan.Plan, b plan.Buffer) (int, error) {
	scope := p.Scope(nil)
	n, err := scope.Eval(b.Elems)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", b.Name, err)
	}
	f, ok := plan.LookupFormat(b.Format)
	if !ok {
		return 0, fmt.Errorf("%s: no element format %q", b.Name, b.Format)
	}
	if b.Size, err = f.Size(n); err != nil {
		return 0, fmt.Errorf("%s: %w", b.Name, err)
	}
	b.ID = len(p.Buffers)
	p.Buffers = append(p.Buffers, b)
	return b.ID, nil
}

// addTables appends the tables that steps read on each device: sines for each rotation, and counters for
// each token and head of keys, and each row of logits.
func addTables(p *plan.Plan, g *graph.Graph, o *Options, s *shared, reference bool) error {
	targets := o.deviceTargets(o.target.Programs(target.Bounds{Ubatch: o.Ubatch, Sequences: o.Sequences})[0], nil)
	g, _, err := lowerable(g, targets, reference)
	if err != nil {
		return err
	}
	s.sines = map[tableOf]int{}
	heads := make([]int64, p.NumDevices())
	if s.top > 0 {
		heads[p.Buffers[s.io[plan.Argmax]].Device] = 1
	}
	for _, n := range g.Nodes {
		if n.Op != ops.Attention {
			continue
		}
		at := targets.at(n)
		low, _ := at.target.Lower(&at.program, n, false)
		sig, ok := plan.LookupKernel(low.Kernel)
		if !ok || sig.Operand("sines") == nil {
			continue
		}
		heads[n.Device] = max(heads[n.Device], n.Attr.Int("kv_heads"))
		rotation, err := rotationOf(low, n)
		if err != nil {
			return err
		}
		t := tableOf{rotation, n.Device}
		if _, ok := s.sines[t]; ok || t.rotation.Rot == 0 {
			continue
		}
		b := plan.Buffer{Class: plan.Table, Name: fmt.Sprintf("sines.%d", len(s.sines)), Format: "f32", Elems: fmt.Sprintf("C*%d", t.rotation.Rot), Device: n.Device}
		if s.sines[t], err = addBuffer(p, b); err != nil {
			return err
		}
	}
	s.counters = make([]int, len(heads))
	for d, n := range heads {
		if n == 0 {
			continue
		}
		name := "counters"
		if d > 0 {
			name = fmt.Sprintf("counters.%d", d)
		}
		id, err := addBuffer(p, plan.Buffer{Class: plan.Table, Name: name, Format: "i32", Elems: fmt.Sprintf("T*%d", n), Device: d})
		if err != nil {
			return err
		}
		s.counters[d] = id
	}
	return nil
}

// rotationOf returns the rotation that the step of an attention node will have.
func rotationOf(low *target.Lowering, n *graph.Node) (plan.Rotation, error) {
	params, err := low.Parameters(n, target.Env{Positions: func(*graph.Value) (int64, bool) { return 1, false }})
	st := plan.Step{Kernel: low.Kernel, Params: params}
	if freqs := n.Operand("freqs"); freqs != nil {
		st.Args = []plan.Arg{{Role: "freqs", Weight: freqs.Name}}
	}
	return plan.RotationOf(&st), err
}

func wholePages(positions int64) int64 {
	return (positions + plan.PageTokens - 1) / plan.PageTokens * plan.PageTokens
}

// storage returns how a state is stored, given any version of its value.
func (s *scheduler) storage(state *graph.Value) (positions int64, ring bool) {
	id := s.buffer[state]
	st := s.states.state[s.p.Buffers[id].Name]
	return st.positions, st.ring
}

// env returns the Env for the target's parameters.
func (s *scheduler) env() target.Env { return target.Env{Positions: s.storage} }

// addWeights lists every weight that some step reads, in the order of first reads.
func addWeights(p *plan.Plan, m *frontend.Model, g *graph.Graph, side *sidecar.File) error {
	devices := map[string][]int{}
	layouts := map[string]string{} // in which kernels read each weight, "" for that of the file
	var names []string
	for _, st := range p.Steps() {
		for _, a := range st.Args {
			if a.Weight == "" {
				continue
			}
			layout, seen := layouts[a.Weight]
			if !seen {
				names = append(names, a.Weight)
			}
			layouts[a.Weight] = cmp.Or(layout, layoutOf(st, &a))
			if on := devices[a.Weight]; !slices.Contains(on, st.Device) {
				devices[a.Weight] = append(on, st.Device)
			}
		}
	}
	weights := map[string]*graph.Value{}
	for _, v := range g.Weights {
		weights[v.Name] = v
	}
	for _, name := range names {
		v := weights[name]
		w, err := weightOf(m, v, side)
		if err != nil {
			return err
		}
		if err := pack(&w, layouts[name]); err != nil {
			return fmt.Errorf("%s: tensor %s: %w", m.File.Path, name, err)
		}
		if on := devices[name]; len(on) > 1 || on[0] != 0 {
			slices.Sort(on)
			w.Devices = on
		}
		p.Weights = append(p.Weights, w)
	}
	return nil
}

// weightOf returns the plan's row of a weight, which may be part of a tensor.
func weightOf(m *frontend.Model, v *graph.Value, side *sidecar.File) (plan.Weight, error) {
	name := v.Tensor().Name
	t, ok := m.File.Tensor(name)
	if !ok {
		return plan.Weight{}, fmt.Errorf("%s: tensor %s is missing", m.File.Path, name)
	}
	info, ok := quant.Lookup(t.Type)
	if !ok {
		return plan.Weight{}, fmt.Errorf("%s: tensor %s has unknown type %d", m.File.Path, name, t.Type)
	}
	dims := slices.Clone(t.Dims)
	slices.Reverse(dims)
	w := plan.Weight{Name: v.Name, Type: string(frontend.DType(info)), Dims: dims, Size: t.Size}
	if part := v.Part; part != nil {
		all, n := dims[part.Axis], v.Type.Shape[part.Axis].N
		w.Part = plan.Part{Of: name, Dims: dims, Axis: part.Axis, From: part.From}
		w.Dims = slices.Clone(dims)
		w.Dims[part.Axis], w.Size = n, t.Size/all*n+t.Size%all*n/all
	}
	if side != nil {
		if _, ok := side.Weight(name); ok { // the sidecar has the matrix
			w.Type, w.Size = plan.SidecarType, (&sidecar.Weight{Rows: w.Dims[0], Cols: w.Dims[1]}).Size()
		}
	}
	return w, nil
}

// layoutOf returns the layout in which a step reads a weight, from the name of its matmul kernel or
// from the signature of the step's kernel.
func layoutOf(st *plan.Step, a *plan.Arg) string {
	if k, ok := plan.ParseMatmul(a.Kernel); ok && k.Layout != "" {
		return k.Layout
	}
	if sig, ok := plan.LookupKernel(st.Kernel); ok {
		return sig.Operand(a.Role).Layout
	}
	return ""
}

// pack sets the layout in which kernels read a weight, and its packed size.
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

// fitsCache refuses a cache format whose blocks do not divide the number of contiguous elements.
func (o *Options) fitsCache(elems int64, what string) error {
	if f, _ := plan.LookupFormat(o.KV); elems%f.Elems != 0 {
		return optionErrorf("{KV} is %q, expected f32, f16 or fp8, since the %d elements of a %s are no multiple of %d", o.KV, elems, what, f.Elems)
	}
	return nil
}

// implicitArgs returns the operands of a step that are not operands of its node: the page table,
// the tables of a device, and the results of the previous run on the device.
func (s *shared) implicitArgs(p *plan.Plan, st *plan.Step, sig *plan.Signature) []plan.Arg {
	var args []plan.Arg
	for _, o := range sig.Operands {
		switch r := plan.RotationOf(st); {
		case o.Input == "pages":
			args = append(args, plan.Arg{Role: o.Role, Buffer: s.io["pages"]})
		case o.Table == plan.Sines && r.Rot > 0:
			args = append(args, plan.Arg{Role: o.Role, Buffer: s.sines[tableOf{r, st.Device}]})
		case o.Table == plan.Counters:
			args = append(args, plan.Arg{Role: o.Role, Buffer: s.counters[st.Device]})
		case o.Kept != "":
			if id, ok := s.io[o.Kept]; ok && p.Buffers[id].Device == st.Device {
				args = append(args, plan.Arg{Role: o.Role, Buffer: id})
			}
		}
	}
	return args
}
