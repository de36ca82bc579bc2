package lower

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pesti/exec/plan"
	"pesti/graph"
	"pesti/lower/target"
	"pesti/ops"
)

// A layout holds the arena buffers of a program with their sizes, before they have lifetimes and
// offsets.
type layout struct {
	buffers []plan.Buffer // IDs follow the shared ones
}

// A scheduler lowers the nodes of one program to steps, in order, and groups steps into waves.
type scheduler struct {
	p       *plan.Plan
	g       *graph.Graph
	devices deviceTargets
	states  shared
	scope   plan.Scope
	uses    map[*graph.Value][]*graph.Node

	buffer map[*graph.Value]int // buffer ID of each value
	bufs   []plan.Buffer        // arena buffers of this program
	access []access             // parallel to the plan's buffers followed by bufs
	waves  []plan.Wave
	after  int // the first wave after the last wave that a single step occupies

	name      string // of the program
	reasons   map[*graph.Node]reason
	fallbacks []Fallback
}

// access records the accesses to one buffer so far.
type access struct {
	written int // wave of the last write, −1 for none
	read    int // wave of the last read
	each    bool
}

// schedule lowers one program's graph. Steps keep the order of the nodes within their wave.
func schedule(p *plan.Plan, g *graph.Graph, targets deviceTargets, states shared, reference bool) (*layout, []Fallback, error) {
	g, reasons, err := lowerable(g, targets, reference)
	if err != nil {
		return nil, nil, err
	}
	tmpl := &targets[len(targets)-1].program
	s := &scheduler{p: p, g: g, devices: targets, states: states, uses: g.Uses(), buffer: map[*graph.Value]int{}, name: tmpl.Name, reasons: reasons}
	prog := &plan.Program{Name: tmpl.Name, Chunk: tmpl.Chunk, MinT: 1, MaxT: tmpl.MaxTokens, MaxR: g.Max(graph.R)}
	switch n := len(p.Programs); {
	case tmpl.Chunk > 0:
		prog.MinT = tmpl.Chunk
	case n > 0:
		prog.MinT = p.Programs[n-1].MaxT + 1
	}
	s.scope = p.Scope(prog)
	for range p.Buffers {
		s.access = append(s.access, access{written: -1, read: -1})
	}
	for _, n := range g.Nodes {
		if err := s.node(n, reference); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", n.Name(), err)
		}
	}
	for _, v := range g.Outputs {
		give := s.copyOut
		if s.isLogits(v) {
			give = s.top
		}
		if err := give(v); err != nil {
			return nil, nil, err
		}
	}
	prog.Waves = s.waves
	id := 0
	for _, st := range prog.Steps() {
		st.ID = id
		id++
	}
	p.Programs = append(p.Programs, *prog)
	return &layout{buffers: s.bufs}, s.fallbacks, nil
}

// node appends the step of one node.
func (s *scheduler) node(n *graph.Node, reference bool) error {
	switch n.Op {
	case ops.Input:
		s.buffer[n.Out[0]] = s.states.io[n.Name()]
		return nil
	case ops.State:
		s.buffer[n.Out[0]] = s.states.state[n.Name()].buffer
		return nil
	}
	at := s.devices.at(n)
	low, why := at.target.Lower(&at.program, n, reference)
	if low == nil {
		return fmt.Errorf("op %s cannot be computed on %s: %s", n.Op.Name, at.target.Name, why)
	}
	params, err := low.Parameters(n, s.env())
	if err != nil {
		return err
	}
	st := plan.Step{
		Name: n.Name(), Layer: layerOf(n.Name()), Kernel: low.Kernel, Rows: string(target.RowsOf(n)),
		Split: low.Split, Params: params, Scratch: -1, Device: n.Device,
	}
	s.fellBack(&st, n, why)
	for _, w := range n.Op.Writes {
		s.buffer[n.Out[w[0]]] = s.buffer[n.In[w[1]]]
	}
	kernels := strings.Split(n.Attr.Str("kernels"), ",")
	for i, v := range n.In {
		if v == nil || low.In[i] == "" {
			continue
		}
		a := plan.Arg{Role: low.In[i], Buffer: -1}
		if v.IsWeight() {
			a.Weight = v.Name
			if k := slices.Index(low.Matmuls, a.Role); k >= 0 {
				a.Kernel = kernels[k]
			}
		} else {
			a.Buffer = s.buffer[v]
		}
		st.Args = append(st.Args, a)
	}
	sig, ok := plan.LookupKernel(low.Kernel)
	if !ok {
		return fmt.Errorf("kernel %s is not in the signature table", low.Kernel)
	}
	st.Args = append(st.Args, s.states.implicitArgs(s.p, &st, sig)...)
	if low.Small && s.rows(st.Rows) <= at.program.Each && !s.isLogits(n.Out[0]) {
		st.Split = plan.Split{By: "each", Unit: 1}
	}
	wave := s.earliest(&st, sig)
	for i, v := range n.Out {
		if low.Out[i] == "" {
			continue
		}
		id, err := s.result(n, v, &st, sig, low.Out[i], wave)
		if err != nil {
			return err
		}
		st.Args = append(st.Args, plan.Arg{Role: low.Out[i], Buffer: id})
	}
	return s.append(st, sig, wave)
}

// append allocates the step's scratch, sorts its arguments in the signature's order, and adds it to
// the end of its wave.
func (s *scheduler) append(st plan.Step, sig *plan.Signature, wave int) error {
	if sig.Scratch != "" {
		scope := s.scope.Of(&st)
		size, err := scope.Eval(sig.ScratchOf(s.format(&st, "x")))
		if err != nil {
			return err
		}
		words := (size + 3) / 4
		st.Scratch = s.add(plan.Buffer{Name: st.Name + ".scratch", Format: "f32", Elems: strconv.FormatInt(words, 10), Each: true, Stride: 4 * words, Device: st.Device})
		s.access[st.Scratch].each = true
	}
	place := make(map[string]int)
	for i, o := range sig.Operands {
		if !o.Repeat {
			place[o.Role] = i * plan.GroupMax
			continue
		}
		for k := range plan.GroupMax {
			place[o.Role+strconv.Itoa(k)] = i*plan.GroupMax + k
		}
	}
	slices.SortStableFunc(st.Args, func(a, b plan.Arg) int { return place[a.Role] - place[b.Role] })
	for len(s.waves) <= wave {
		s.waves = append(s.waves, plan.Wave{})
	}
	s.waves[wave].Steps = append(s.waves[wave].Steps, st)
	if s.inOrder(&st) {
		s.after = wave + 1
	}
	for _, a := range st.Args {
		if a.Buffer < 0 {
			continue
		}
		dir := sig.Operand(a.Role).Dir
		acc := &s.access[a.Buffer]
		if dir.Reads() {
			acc.read = max(acc.read, wave)
		}
		if dir.Writes() {
			acc.written = max(acc.written, wave)
		}
	}
	return nil
}

// format returns the format of the buffer in a role of a step, "" if there is none.
func (s *scheduler) format(st *plan.Step, role string) string {
	for _, a := range st.Args {
		if id := a.Buffer - len(s.p.Buffers); a.Role == role && id >= 0 {
			return s.bufs[id].Format
		}
	}
	return ""
}

// inOrder reports whether a step has a wave of its own, since its device runs steps in order.
func (s *scheduler) inOrder(st *plan.Step) bool {
	return s.devices[st.Device].target.Serial || plan.IsTransfer(st.Kernel)
}

// earliest returns the first wave in which the step may run. It is after the waves that wrote the
// step's inputs, or the same wave if every worker wrote its own copy, and after all accesses to a
// state that the step writes. If the device runs steps in order, it is a new wave.
func (s *scheduler) earliest(st *plan.Step, sig *plan.Signature) int {
	if s.inOrder(st) {
		return len(s.waves)
	}
	wave := s.after
	for _, a := range st.Args {
		if a.Buffer < 0 {
			continue
		}
		acc := s.access[a.Buffer]
		switch {
		case acc.written < 0:
		case acc.each:
			wave = max(wave, acc.written)
		default:
			wave = max(wave, acc.written+1)
		}
		if sig.Operand(a.Role).Dir.Writes() {
			wave = max(wave, acc.read+1)
		}
	}
	return wave
}

// result returns the buffer for a node's result: the buffer of an operand whose last use this is,
// if op and kernel allow it and no other step can still be reading; else a new buffer.
func (s *scheduler) result(n *graph.Node, v *graph.Value, st *plan.Step, sig *plan.Signature, role string, wave int) (int, error) {
	each := st.Split.By == "each"
	if s.isLogits(v) {
		s.buffer[v] = s.states.io["logits"]
		return s.buffer[v], nil
	}
	for _, pair := range n.Op.Alias {
		u := n.In[pair[1]]
		if n.Out[pair[0]] != v || u == nil || u.IsWeight() || !s.mayAlias(u, v, n, sig, role, wave, each) {
			continue
		}
		s.buffer[v] = s.buffer[u]
		return s.buffer[v], nil
	}
	elems, count, err := s.extent(v)
	if err != nil {
		return 0, err
	}
	b := plan.Buffer{Name: v.Name, Format: string(v.Type.DType), Elems: elems, Each: each, Device: n.Device}
	f, ok := plan.LookupFormat(b.Format)
	if !ok {
		return 0, fmt.Errorf("no element format %q", b.Format)
	}
	if b.Size, err = f.Size(count); err != nil {
		return 0, err
	}
	if each {
		b.Stride = b.Size
	}
	id := s.add(b)
	s.access[id].each = each
	s.buffer[v] = id
	return id, nil
}

// isLogits reports whether v is written directly to the caller's memory. Other outputs are copied
// there, so that an extra output changes no other step.
func (s *scheduler) isLogits(v *graph.Value) bool { return v.Name == "logits" && s.g.IsOutput(v) }

func (s *scheduler) mayAlias(u, v *graph.Value, n *graph.Node, sig *plan.Signature, role string, wave int, each bool) bool {
	id := s.buffer[u]
	acc := s.access[id]
	return id >= len(s.p.Buffers) && // neither a state nor the caller's
		!s.g.IsOutput(u) &&
		s.lastUse(u) == n && !twice(n, u) &&
		acc.each == each &&
		u.Type.Equal(v.Type) &&
		sig.Operand(role).Alias != "" &&
		acc.read < wave // another step of the wave may be reading it
}

// twice reports whether v is more than one operand of n, so that a result in its place would change
// the other operands.
func twice(n *graph.Node, v *graph.Value) bool {
	first := slices.Index(n.In, v)
	return slices.Contains(n.In[first+1:], v)
}

// lastUse returns the last node that reads v.
func (s *scheduler) lastUse(v *graph.Value) *graph.Node {
	uses := s.uses[v]
	if len(uses) == 0 {
		return nil
	}
	return uses[len(uses)-1]
}

// add appends an arena buffer. An Each buffer has a copy for every worker.
func (s *scheduler) add(b plan.Buffer) int {
	b.ID = len(s.p.Buffers) + len(s.bufs)
	b.Class = plan.Arena
	if b.Each {
		b.Stride = (b.Stride + plan.ArenaAlign - 1) &^ (plan.ArenaAlign - 1)
		b.Size = b.Stride * int64(s.p.Device(b.Device).Threads)
	}
	s.bufs = append(s.bufs, b)
	s.access = append(s.access, access{written: -1, read: -1})
	return b.ID
}

// copyOut appends a step that copies an output value to the caller's memory.
func (s *scheduler) copyOut(v *graph.Value) error {
	kernel := s.devices.at(v.Def).target.Copy
	sig, ok := plan.LookupKernel(kernel)
	if !ok {
		return fmt.Errorf("kernel %s is not in the signature table", kernel)
	}
	width := int64(1)
	for _, d := range v.Type.Shape[1:] {
		width *= dim(s.g, d)
	}
	st := plan.Step{
		Name: v.Name + ".copy", Layer: layerOf(v.Name), Kernel: kernel, Rows: string(v.Type.Shape[0].Sym),
		Split: plan.Split{By: sig.Splits[0], Unit: 1}, Params: []plan.Param{{Name: "n", Value: width}}, Scratch: -1, Device: v.Def.Device,
		Args: []plan.Arg{{Role: "x", Buffer: s.buffer[v]}, {Role: "y", Buffer: s.states.io[v.Name]}},
	}
	return s.append(st, sig, s.earliest(&st, sig))
}

// rows returns the bound of the symbol that counts a step's rows.
func (s *scheduler) rows(sym string) int64 { return s.g.Max(graph.Sym(sym)) }

// extent returns a value's number of elements as a formula and as a number.
func (s *scheduler) extent(v *graph.Value) (string, int64, error) {
	formula := formulaOf(v.Type)
	n, err := s.scope.Eval(formula)
	return formula, n, err
}

// formulaOf returns a shape as a product: T*896.
func formulaOf(t graph.Type) string {
	var terms []string
	for _, d := range t.Shape {
		terms = append(terms, d.String())
	}
	return strings.Join(terms, "*")
}

func dim(g *graph.Graph, d graph.Dim) int64 {
	if d.Sym == graph.Const {
		return d.N
	}
	return g.Max(d.Sym)
}

// layerOf returns the N of a name blk.N.…, or −1.
func layerOf(name string) int {
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return -1
	}
	digits, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}
