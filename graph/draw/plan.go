package draw

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pesti/exec/plan"
)

// Plan returns the dot text of a plan: a box for each step, a rank for each wave. Solid links are
// data dependences; dashed links are orders that only the reuse of memory forces. It is an error if
// the plan does not verify or does not have the program or block.
func Plan(p *plan.Plan, o Options) (string, error) {
	if err := plan.Verify(p); err != nil {
		return "", err
	}
	pic := &picture{title: planTitle(p, o)}
	programs, err := chosenPrograms(p, o)
	if err != nil {
		return "", err
	}
	var names []string
	for _, g := range programs {
		base := len(pic.boxes)
		pic.addProgram(p, g)
		if err := pic.times(g, base, o); err != nil {
			return "", err
		}
		names = append(names, g.Name)
	}
	pic.name = pic.title[0] + ", " + strings.Join(names, ", ")
	pic, err = pic.finish(o)
	if err != nil {
		return "", err
	}
	pic.lanes(laneIn(p))
	if o.Times != nil {
		pic.colorByTime()
	}
	return pic.dot(), nil
}

// chosenPrograms returns the programs that the options select.
func chosenPrograms(p *plan.Plan, o Options) ([]*plan.Program, error) {
	var chosen []*plan.Program
	var names []string
	for i := range p.Programs {
		g := &p.Programs[i]
		names = append(names, g.Name)
		if g.Name == cmp.Or(o.Program, g.Name) && (o.Program != "" || o.All || i == 0) {
			chosen = append(chosen, g)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("program %q does not exist, expected one of %q", o.Program, names)
	}
	return chosen, nil
}

func planTitle(p *plan.Plan, o Options) []string {
	t, m, places := &p.Target, &p.Memory, ""
	if n := len(p.Devices); n > 0 {
		places = " on " + count(n, "device")
	}
	return []string{
		cmp.Or(o.Title, p.Model.Name, p.Model.Arch),
		fmt.Sprintf("%s %s%s · %s · KV cache in %s · context %d · up to %s in a step, S ≤ %s, %s",
			t.Backend, t.ISA, places, t.Precision, t.KV, t.Ctx, count(t.Ubatch, "token"), count(t.Sequences, "sequence"), count(t.Threads, "thread")),
		fmt.Sprintf("weights %s · %s%s %s · io %s · arena %s (lower bound %s, without reuse %s)",
			plan.HumanBytes(m.Weight), packed(m.Packed), cacheName, plan.HumanBytes(m.State), plan.HumanBytes(m.IO),
			plan.HumanBytes(m.Arena), plan.HumanBytes(m.ArenaLowerBound), plan.HumanBytes(m.ArenaUnshared)),
	}
}

// packed returns a text with the size of packed weights, if there are any.
func packed(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return "packed " + plan.HumanBytes(bytes) + " · "
}

// count returns a number with its noun, in the plural if needed.
func count[N int | int64](n N, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprint(n, " ", thing)
}

// tokens returns a text with the numbers of tokens that the program takes.
func tokens(g *plan.Program) string {
	if g.MinT == g.MaxT && g.Chunk == 0 {
		return "T = " + count(g.MaxT, "token")
	}
	s := fmt.Sprintf("%d ≤ T ≤ %s", g.MinT, count(g.MaxT, "token"))
	if g.Chunk > 0 {
		s += fmt.Sprintf(" by %d", g.Chunk)
	}
	return s
}

func (pic *picture) addProgram(p *plan.Plan, g *plan.Program) {
	pic.title = append(pic.title, fmt.Sprintf("program %s: %s, R ≤ %s of logits · %s in %s",
		g.Name, tokens(g), count(g.MaxR, "row"), count(g.NumSteps(), "step"), count(len(g.Waves), "wave")))
	types := p.WeightsByName()
	base := len(pic.boxes)
	all := touches(p, g)
	for i, st := range g.Steps() {
		b := stepBox(st, i, types)
		b.id = fmt.Sprintf("%s.step.%d", g.Name, st.ID)
		b.program = g.Name
		var takes []string
		for _, t := range all[st.ID] {
			if t.reads && t.buffer.Class == plan.IO {
				takes = append(takes, t.buffer.Name)
			}
			if t.writes {
				b.stores = append(b.stores, store(t.buffer, st, valueIn(t.buffer, st, all[st.ID])))
				b.output = b.output || t.buffer.Class == plan.IO
				b.shape += " " + t.buffer.Format + " " + t.buffer.Elems
			}
		}
		if several := results(st, all[st.ID]); len(several) > 1 {
			var names []string
			for _, u := range several {
				names = append(names, inLayer(u.Name, st.Layer))
			}
			b.title = strings.Join(names, ", ")
		}
		b.take(takes)
		pic.boxes = append(pic.boxes, b)
	}
	for _, l := range dependencies(all) {
		l.from += base
		l.to += base
		pic.links = append(pic.links, l)
	}
}

func stepBox(st *plan.Step, wave int, weights map[string]*plan.Weight) box {
	split := st.Split.By
	if st.Split.Unit > 1 {
		split += fmt.Sprintf("/%d", st.Split.Unit)
	}
	b := box{
		layer: st.Layer, device: st.Device,
		rank:  wave,
		kind:  kindOfKernel(st.Kernel),
		place: fmt.Sprintf("wave %d · step %d", wave, st.ID),
		title: inLayer(st.Name, st.Layer),
		lines: []string{fmt.Sprintf("%s[%s], split %s", st.Kernel, st.Rows, split)},
	}
	var params, shown []string
	for _, p := range st.Params {
		param := p.Name + " " + short(p.Value)
		params = append(params, param)
		if !neutral[param] {
			shown = append(shown, param)
		}
	}
	b.lines = append(b.lines, wrap(shown)...)
	b.shape = strings.Join([]string{st.Kernel, st.Rows, split, strings.Join(params, " "), laneOf(st.Device)}, " ")
	for _, a := range st.Args {
		if a.Weight == "" {
			continue
		}
		w := weights[a.Weight]
		typ := w.Type
		if k, ok := plan.ParseMatmul(a.Kernel); ok {
			typ = strings.TrimSuffix(a.Kernel, "."+k.Activations)
		}
		b.weights = append(b.weights, weight{name: inLayer(w.Name, st.Layer), types: []string{typ}, dims: dims(w.Dims)})
		b.shape += fmt.Sprint(" ", a.Role, w.Dims)
	}
	return b
}

// classNames are displayed names of buffer classes that differ from the names in plans.
var classNames = map[plan.Class]string{plan.State: cacheName}

// store describes the location and lifetime of the buffer in which a step leaves a value.
func store(b *plan.Buffer, st *plan.Step, value string) string {
	name := inLayer(value, st.Layer)
	if b.ID == st.Scratch {
		name = scratchKind
	}
	s := fmt.Sprintf("b%d %s  %s  %s", b.ID, name, bufferShape(b), cmp.Or(classNames[b.Class], string(b.Class)))
	if b.Class != plan.Arena {
		return s + "  " + plan.HumanBytes(b.Size)
	}
	size := plan.HumanBytes(b.Size)
	if b.Each {
		size = fmt.Sprintf("%d × %s", b.Size/b.Stride, plan.HumanBytes(b.Stride))
	}
	return fmt.Sprintf("%s  at %d  %s  steps [%d,%d)", s, b.Offset, size, b.First, b.Last)
}

func bufferShape(b *plan.Buffer) string {
	return b.Format + " " + strings.ReplaceAll(b.Elems, "*", "×")
}

func dims(d []int64) string {
	return strings.ReplaceAll(fmt.Sprint(d), " ", "×")
}

// inLayer drops the block's prefix from a name inside the block's frame.
func inLayer(name string, layer int) string {
	if layer == outside {
		return name
	}
	return strings.TrimPrefix(name, fmt.Sprintf("blk.%d.", layer))
}

// neutral lists parameters and attributes that have no effect and are not shown.
var neutral = map[string]bool{"window 0": true, "ring 0": true, "eps 0": true, "scale 1": true, "freq_scale 1": true, "ramp_low 0": true, "ramp_high 0": true, "magnitude 1": true}

func short(v any) string {
	if f, ok := v.(float64); ok {
		return fmt.Sprintf("%.4g", f)
	}
	return fmt.Sprint(v)
}

// wrap joins words into lines of moderate length.
func wrap(words []string) []string {
	const width = 52
	var lines []string
	for _, w := range words {
		if n := len(lines); n > 0 && len(lines[n-1])+len(w)+2 <= width {
			lines[n-1] += ", " + w
		} else {
			lines = append(lines, w)
		}
	}
	return slices.Clip(lines)
}
