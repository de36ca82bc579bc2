package plan

import (
	"bytes"
	"fmt"
	"strconv"
)

// A Difference is one property in which two plans differ. Equal differences of several layers are
// merged into one, whose names have blk.N for the layer and blk.N-1 for the layer before.
type Difference struct {
	Section string `json:"section"`          // "model", "target", "memory", …, or "program" and its name
	Place   string `json:"place,omitempty"`  // the weight, buffer or step: "blk.N.ffn_gated"
	Layers  []int  `json:"layers,omitempty"` // what N stands for, ascending
	What    string `json:"what"`             // "arena", "kernel of w0"
	From    any    `json:"from"`             // an int64 or a string; nil if only the second plan has it
	To      any    `json:"to"`               // nil if only the first plan has it
	Bytes   bool   `json:"bytes,omitempty"`  // From and To count bytes
	// Placement marks a difference of addresses or of the order of steps alone. It mostly follows
	// from other differences.
	Placement bool `json:"placement,omitempty"`
}

// Diff returns all differences from a to b, in the order in which a plan is printed. The list is
// empty if and only if both plans print to the same text.
func Diff(a, b *Plan) []Difference {
	d := &differ{index: map[differenceKey]int{}}
	for _, f := range header {
		d.compare(subject{section: f.section, layer: noLayer}, f.on(a), f.on(b))
	}
	d.items("devices", "device", deviceItems(a), deviceItems(b))
	d.items("weights", "weight", weightItems(a.Weights), weightItems(b.Weights))
	d.items("buffers", "buffer", bufferItems(a.Buffers), bufferItems(b.Buffers))
	d.programs(a, b)
	if len(d.list) == 0 && !bytes.Equal(Print(a), Print(b)) {
		d.add(subject{section: "order", layer: noLayer}, Difference{What: "lines", From: "order of the first plan", To: "order of the second", Placement: true})
	}
	for i := range d.list {
		d.list[i].unfoldOne()
	}
	return d.list
}

// WithoutPlacement returns the differences of a list that are not of placement, and the number of the others,
// one for each layer.
func WithoutPlacement(list []Difference) (rest []Difference, placement int) {
	for _, d := range list {
		if d.Placement {
			placement += max(1, len(d.Layers))
		} else {
			rest = append(rest, d)
		}
	}
	return rest, placement
}

// String says in words what differs: "kernel: gated → matmul_group", "arena: 2.0 KiB → 3.0 KiB
// (+1.0 KiB)".
func (d *Difference) String() string {
	show := func(v any) string {
		if n, ok := v.(int64); ok && d.Bytes {
			return HumanBytes(n)
		}
		return fmt.Sprint(v)
	}
	switch {
	case d.From == nil:
		return fmt.Sprintf("%s added: %s", d.What, show(d.To))
	case d.To == nil:
		return fmt.Sprintf("%s removed: %s", d.What, show(d.From))
	}
	s := fmt.Sprintf("%s: %s → %s", d.What, show(d.From), show(d.To))
	from, isNumber := d.From.(int64)
	to, areNumbers := d.To.(int64)
	switch {
	case !isNumber || !areNumbers || !d.Bytes:
		return s
	case to < from:
		return fmt.Sprintf("%s (−%s)", s, HumanBytes(from-to))
	}
	return fmt.Sprintf("%s (+%s)", s, HumanBytes(to-from))
}

// A detail is one property of a subject. A nil value means that the plan does not state it.
type detail struct {
	what      string
	value     any // an int64 or a string
	bytes     bool
	placement bool
}

// A fact is a property that every owner (a plan or a program) has.
type fact[Owner any] struct {
	section, what string
	value         func(Owner) any
	bytes         bool
}

func (f *fact[Owner]) on(o Owner) []detail {
	return []detail{{what: f.what, value: f.value(o), bytes: f.bytes}}
}

// header lists the properties of a plan.
var header = []fact[*Plan]{
	{"format", "version", func(p *Plan) any { return int64(p.Version) }, false},
	{"model", "architecture", func(p *Plan) any { return p.Model.Arch }, false},
	{"model", "name", func(p *Plan) any { return strconv.Quote(p.Model.Name) }, false},
	{"model", "file", func(p *Plan) any { return strconv.Quote(p.Model.File) }, false},
	{"model", "size", func(p *Plan) any { return p.Model.Size }, true},
	{"model", "digest of the directory", func(p *Plan) any { return quote(p.Model.HeaderDigest) }, false},
	{"model", "digest of the data", func(p *Plan) any { return quote(p.Model.WeightsDigest) }, false},
	{"sidecar", "file", func(p *Plan) any { return strconv.Quote(p.Sidecar.File) }, false},
	{"sidecar", "size", func(p *Plan) any { return p.Sidecar.Size }, true},
	{"sidecar", "digest of the directory", func(p *Plan) any { return quote(p.Sidecar.HeaderDigest) }, false},
	{"sidecar", "digest of the data", func(p *Plan) any { return quote(p.Sidecar.WeightsDigest) }, false},
	{"target", "backend", func(p *Plan) any { return p.Target.Backend }, false},
	{"target", "instruction set", func(p *Plan) any { return p.Target.ISA }, false},
	{"target", "precision", func(p *Plan) any { return p.Target.Precision }, false},
	{"target", "KV cache", func(p *Plan) any { return p.Target.KV }, false},
	{"target", "threads", func(p *Plan) any { return int64(p.Target.Threads) }, false},
	{"target", "ctx", func(p *Plan) any { return p.Target.Ctx }, false},
	{"target", "ubatch", func(p *Plan) any { return p.Target.Ubatch }, false},
	{"target", "sequences", func(p *Plan) any { return p.Target.Sequences }, false},
	{"target", "rows", func(p *Plan) any { return p.Target.Rows }, false},
	{"target", "devices", func(p *Plan) any { return int64(p.NumDevices()) }, false},
	{"passes", "list", func(p *Plan) any { return strconv.Quote(p.Passes) }, false},
	{"fusions", "qkv", func(p *Plan) any { return int64(p.Fusions.QKV) }, false},
	{"fusions", "gated_mlp", func(p *Plan) any { return int64(p.Fusions.GatedMLP) }, false},
	{"fusions", "attention", func(p *Plan) any { return int64(p.Fusions.Attention) }, false},
	{"memory", "weight", func(p *Plan) any { return p.Memory.Weight }, true},
	{"memory", "packed", func(p *Plan) any { return p.Memory.Packed }, true},
	{"memory", "KV cache", func(p *Plan) any { return p.Memory.State }, true},
	{"memory", "tables", func(p *Plan) any { return p.Memory.Tables }, true},
	{"memory", "io", func(p *Plan) any { return p.Memory.IO }, true},
	{"memory", "arena", func(p *Plan) any { return p.Memory.Arena }, true},
	{"memory", "arena's lower bound", func(p *Plan) any { return p.Memory.ArenaLowerBound }, true},
	{"memory", "arena without reuse", func(p *Plan) any { return p.Memory.ArenaUnshared }, true},
}

// programFacts lists the properties of a program.
var programFacts = []fact[*Program]{
	{"", "chunk of tokens", func(g *Program) any { return g.Chunk }, false},
	{"", "tokens at least", func(g *Program) any { return g.MinT }, false},
	{"", "tokens at most", func(g *Program) any { return g.MaxT }, false},
	{"", "rows at most", func(g *Program) any { return g.MaxR }, false},
	{"", "steps", func(g *Program) any { return int64(summarize(g).Steps) }, false},
	{"", "waves", func(g *Program) any { return int64(len(g.Waves)) }, false},
	{"", "steps per layer", func(g *Program) any { return int64(summarize(g).StepsPerLayer) }, false},
	{"", "waves per layer", func(g *Program) any { return int64(summarize(g).WavesPerLayer) }, false},
}

// programs compares the programs with equal names.
func (d *differ) programs(a, b *Plan) {
	only := func(g *Program) string {
		s := summarize(g)
		return fmt.Sprintf("%d <= T <= %d, %d steps in %d waves", g.MinT, g.MaxT, s.Steps, s.Waves)
	}
	for _, g := range pair(a.Programs, b.Programs, func(g *Program) string { return g.Name }) {
		s := subject{section: "program ", layer: noLayer}
		switch {
		case g.b == nil:
			s.section += g.a.Name
			d.add(s, Difference{What: "program", From: only(g.a)})
		case g.a == nil:
			s.section += g.b.Name
			d.add(s, Difference{What: "program", To: only(g.b)})
		default:
			s.section += g.a.Name
			for _, f := range programFacts {
				d.compare(s, f.on(g.a), f.on(g.b))
			}
			d.items(s.section, "step", stepItems(a, g.a), stepItems(b, g.b))
			d.items(s.section, "buffer", placed(bufferItems(g.a.Buffers)), placed(bufferItems(g.b.Buffers)))
		}
	}
}

// An item is a weight, buffer or step with its details.
type item struct {
	name      string
	summary   string // printed if the other plan has no such item
	details   []detail
	placement bool
}

// deviceItems returns the devices of a plan for several devices.
func deviceItems(p *Plan) []item {
	var items []item
	for i := range p.Devices {
		d := &p.Devices[i]
		details := []detail{
			{what: "backend", value: d.Backend},
			{what: "instruction set", value: d.ISA},
			{what: "threads", value: int64(d.Threads)},
		}
		for _, f := range d.Memory.fields() {
			details = append(details, detail{what: f.name, value: *f.bytes, bytes: true})
		}
		items = append(items, item{fmt.Sprintf("device %d", i), d.Backend + " " + d.ISA, details, false})
	}
	return items
}

func weightItems(weights []Weight) []item {
	var items []item
	for i := range weights {
		w := &weights[i]
		kind := w.Type + dims(w.Dims)
		items = append(items, item{w.Name, kind, []detail{
			{what: "type", value: kind},
			{what: "size", value: w.Size, bytes: true},
			{what: "layout", value: w.Layout},
			{what: "packed", value: w.Packed, bytes: true},
			{what: "part", value: w.Part.String()},
			{what: "devices", value: fmt.Sprint(w.DeviceIDs())},
		}, false})
	}
	return items
}

func bufferItems(buffers []Buffer) []item {
	var items []item
	for i := range buffers {
		b := &buffers[i]
		details := []detail{
			{what: "class", value: string(b.Class)},
			{what: "format", value: b.Format},
			{what: "elements", value: b.Elems},
			{what: "size", value: b.Size, bytes: true},
			{what: "device", value: int64(b.Device)},
			{what: "number", value: int64(b.ID), placement: true},
		}
		if b.Class == Arena {
			if b.Each {
				details = append(details, detail{what: "copy for each worker, of", value: b.Stride, bytes: true})
			}
			details = append(details,
				detail{what: "offset", value: b.Offset, placement: true},
				detail{what: "lifetime", value: fmt.Sprintf("steps [%d,%d)", b.First, b.Last), placement: true})
		}
		items = append(items, item{b.Name, fmt.Sprintf("%s %s, %s", b.Format, b.Elems, HumanBytes(b.Size)), details, false})
	}
	return items
}

// placed marks the details of a program's buffers as placement. Their formats and extents are
// compared at the steps that read and write them.
func placed(items []item) []item {
	for i := range items {
		items[i].placement = true
		for j := range items[i].details {
			items[i].details[j].placement = true
		}
	}
	return items
}

// stepItems returns the steps of a program. Their operands are named by the buffers' contents,
// since numbers change.
func stepItems(p *Plan, g *Program) []item {
	buffer := func(id int) any {
		b := p.Buffer(g, id)
		switch {
		case id == noBuffer:
			return nil
		case b == nil: // the plan does not verify
			return fmt.Sprintf("b%d", id)
		case id < len(p.Buffers): // a shared buffer's details are compared at the buffer
			return b.Name
		}
		return fmt.Sprintf("%s (%s %s)", b.Name, b.Format, b.Elems)
	}
	var items []item
	for i, st := range g.Steps() {
		kernel := fmt.Sprintf("%s[%s]", st.Kernel, st.Rows)
		details := []detail{
			{what: whatKernel, value: kernel},
			{what: "layer", value: int64(st.Layer)},
			{what: "split", value: fmt.Sprintf("%s/%d", st.Split.By, st.Split.Unit)},
			{what: "scratch", value: buffer(st.Scratch)},
			{what: "device", value: int64(st.Device)},
			{what: "wave", value: int64(i), placement: true},
			{what: "number", value: int64(st.ID), placement: true},
		}
		for _, a := range st.Args {
			if a.Buffer != noBuffer {
				details = append(details, detail{what: a.Role, value: buffer(a.Buffer)})
				continue
			}
			details = append(details, detail{what: a.Role, value: "@" + a.Weight})
			if a.Kernel != "" {
				details = append(details, detail{what: "kernel of " + a.Role, value: a.Kernel})
			}
		}
		for _, q := range st.Params {
			details = append(details, detail{what: "parameter " + q.Name, value: literal(q.Value)})
		}
		items = append(items, item{st.Name, kernel, details, false})
	}
	return items
}

// items compares the items with equal names.
func (d *differ) items(section, what string, a, b []item) {
	for _, i := range pair(a, b, func(i *item) string { return i.name }) {
		switch {
		case i.b == nil:
			d.add(subjectOf(section, i.a.name), Difference{What: what, From: i.a.summary, Placement: i.a.placement})
		case i.a == nil:
			d.add(subjectOf(section, i.b.name), Difference{What: what, To: i.b.summary, Placement: i.b.placement})
		default:
			d.compare(subjectOf(section, i.a.name), i.a.details, i.b.details)
		}
	}
}

// whatKernel names the detail that holds a step's kernel.
const whatKernel = "kernel"

// compare compares the details of one subject. If two steps have different kernels, details that
// only one of them has, such as parameters, are left out.
func (d *differ) compare(s subject, a, b []detail) {
	alike := true
	for _, x := range pair(a, b, func(x *detail) string { return x.what }) {
		n, one := Difference{}, x.a
		if x.a != nil {
			n.From = x.a.value
		}
		if x.b != nil {
			n.To, one = x.b.value, x.b
		}
		if n.From == n.To || !alike && (n.From == nil || n.To == nil) {
			continue
		}
		alike = alike && one.what != whatKernel
		n.What, n.Bytes, n.Placement = one.what, one.bytes, one.placement
		d.add(s, n)
	}
}

// A pairing is two elements of the same name, one of each list; nil if a list has none.
type pairing[T any] struct{ a, b *T }

// pair matches elements of the same name, the n-th in a with the n-th in b. The result is in the
// order of a; elements of b alone come last.
func pair[T any](a, b []T, name func(*T) string) []pairing[T] {
	type key struct {
		name string
		nth  int
	}
	var pairs []pairing[T]
	seen, at := map[string]int{}, map[key]int{}
	for i := range a {
		k := name(&a[i])
		at[key{k, seen[k]}] = len(pairs)
		seen[k]++
		pairs = append(pairs, pairing[T]{a: &a[i]})
	}
	clear(seen)
	for i := range b {
		k := name(&b[i])
		if j, ok := at[key{k, seen[k]}]; ok {
			pairs[j].b = &b[i]
		} else {
			pairs = append(pairs, pairing[T]{b: &b[i]})
		}
		seen[k]++
	}
	return pairs
}
