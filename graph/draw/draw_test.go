package draw

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-graphviz"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
	"pesti/graph"
	engine "pesti/graph/draw/graphviz"
	"pesti/ops"
)

var everything = Options{All: true, Layer: -1}

// A drawing is a dot text as parsed by Graphviz.
type drawing struct {
	nodes []string            // ids
	attrs map[string]string   // of nodes, label
	links map[[2]string]style // by ids
}

type style struct{ style, label string }

// read parses a dot text. It leaves out invisible links, which only affect the layout.
func read(t *testing.T, text string) drawing {
	t.Helper()
	g, err := graphviz.ParseBytes([]byte(text))
	if err != nil {
		t.Fatalf("Graphviz cannot read the text: %v", err)
	}
	defer g.Close()
	d := drawing{attrs: map[string]string{}, links: map[[2]string]style{}}
	n, err := g.FirstNode()
	for ; n != nil && err == nil; n, err = g.NextNode(n) {
		id := n.GetStr("id")
		if d.attrs[id] != "" {
			t.Errorf("two nodes with the id %s", id)
		}
		d.nodes = append(d.nodes, id)
		d.attrs[id] = n.GetStr("label")
		e, err := g.FirstOut(n)
		for ; e != nil && err == nil; e, err = g.NextOut(e) {
			if e.GetStr("style") == "invis" {
				continue
			}
			tail, _ := e.Tail()
			head, _ := e.Head()
			key := [2]string{tail.GetStr("id"), head.GetStr("id")}
			if _, twice := d.links[key]; twice {
				t.Errorf("two links %v", key)
			}
			d.links[key] = style{e.GetStr("style"), e.GetStr("label")}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func draw(t *testing.T, p *plan.Plan, o Options) string {
	t.Helper()
	text, err := Plan(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// conflictsByByte computes, for each pair of steps, whether the later one reads a value of the
// earlier one (data), and whether they access a byte that one of them writes (order). It simulates
// the program on a memory that records the accesses to every 4 bytes.
func conflictsByByte(p *plan.Plan, g *plan.Program) (data, order map[[2]int]bool) {
	data, order = map[[2]int]bool{}, map[[2]int]bool{}
	type cell struct{ readers, writers []int }
	memory := map[string]*cell{}
	owner := map[int]int{} // the last writer of a buffer
	id := 0
	for _, w := range g.Waves {
		for _, st := range w.Steps {
			sig, _ := plan.LookupKernel(st.Kernel)
			var reads, writes []int
			for _, a := range st.Args {
				o := sig.Operand(a.Role)
				if a.Buffer >= 0 && o.Dir.Reads() {
					reads = append(reads, a.Buffer)
				}
				if a.Buffer >= 0 && o.Dir.Writes() {
					writes = append(writes, a.Buffer)
				}
			}
			for _, b := range reads {
				if from, ok := owner[b]; ok {
					data[[2]int{from, id}] = true
				}
			}
			for _, b := range writes {
				owner[b] = id
			}
			if st.Scratch >= 0 {
				writes = append(writes, st.Scratch)
			}
			cells := func(b int) []*cell {
				space, lo, n := fmt.Sprint("buffer ", b), int64(0), int64(1)
				if b >= len(p.Buffers) {
					u := g.Buffers[b-len(p.Buffers)]
					space, lo, n = "arena", u.Offset/4, u.Size/4
				}
				var list []*cell
				for i := lo; i < lo+n; i++ {
					key := space + strconv.FormatInt(i, 10)
					if memory[key] == nil {
						memory[key] = &cell{}
					}
					list = append(list, memory[key])
				}
				return list
			}
			add := func(list []int) {
				for _, from := range list {
					if from != id {
						order[[2]int{from, id}] = true
					}
				}
			}
			for _, b := range reads {
				for _, c := range cells(b) {
					add(c.writers)
					if n := len(c.readers); n == 0 || c.readers[n-1] != id {
						c.readers = append(c.readers, id)
					}
				}
			}
			for _, b := range writes {
				for _, c := range cells(b) {
					add(c.writers)
					add(c.readers)
					if n := len(c.writers); n == 0 || c.writers[n-1] != id {
						c.writers = append(c.writers, id)
					}
				}
			}
			id++
		}
	}
	return data, order
}

// reaches computes which steps are reachable from which along links, without one of the links.
func reaches(n int, links map[[2]int]bool, without [2]int) map[[2]int]bool {
	before := map[[2]int]bool{}
	for to := range n {
		for from := range to {
			if k := [2]int{from, to}; links[k] && k != without {
				before[k] = true
				for x := range from {
					if before[[2]int{x, from}] {
						before[[2]int{x, to}] = true
					}
				}
			}
		}
	}
	return before
}

// The picture of everything has a node for each step, a solid link for each value that one step
// passes to another, a dashed link wherever only memory forces an order, and nothing else.
func TestPlanOfEverything(t *testing.T) {
	p := plantest.DumpingPlan(3)
	d := read(t, draw(t, p, everything))
	steps, dashed := 0, 0
	seen := map[[2]string]bool{}
	for i := range p.Programs {
		g := &p.Programs[i]
		n := g.NumSteps()
		steps += n
		name := func(step int) string { return fmt.Sprintf("%s.step.%d", g.Name, step) }
		data, order := conflictsByByte(p, g)
		drawn, reuse := map[[2]int]bool{}, map[[2]int]bool{}
		for to := range n {
			if d.attrs[name(to)] == "" {
				t.Errorf("no node for %s", name(to))
			}
			for from := range n {
				k, key := [2]int{from, to}, [2]string{name(from), name(to)}
				l, ok := d.links[key]
				seen[key] = ok
				if solid := ok && l.style != "dashed"; solid != data[k] {
					t.Errorf("%v: solid link %v, takes a value %v", key, solid, data[k])
				}
				if ok {
					drawn[k] = true
					reuse[k] = l.style == "dashed"
				}
				if data[k] && !strings.Contains(l.label, "×") {
					t.Errorf("%v: label %q, want a shape", key, l.label)
				}
			}
		}
		all := reaches(n, drawn, [2]int{-1, -1})
		for k := range order {
			if !all[k] {
				t.Errorf("%s: steps %v share memory, and no links order them", g.Name, k)
			}
		}
		for k, is := range reuse {
			if !is {
				continue
			}
			dashed++
			if !order[k] {
				t.Errorf("%s: a dashed link %v, and the steps share no memory", g.Name, k)
			}
			if reaches(n, drawn, k)[k] {
				t.Errorf("%s: a dashed link %v, and other links order the steps", g.Name, k)
			}
		}
	}
	if len(d.nodes) != steps {
		t.Errorf("%d nodes, want the %d steps", len(d.nodes), steps)
	}
	for key := range d.links {
		if !seen[key] {
			t.Errorf("link %v is not between steps of a program", key)
		}
	}
	if dashed == 0 {
		t.Error("no dashed links, so nothing was tested about them")
	}
}

// A plan whose steps are ordered by memory alone: two chains that share an address.
func TestReuseLinks(t *testing.T) {
	buffers := []plan.Buffer{
		{ID: 0, Class: plan.Arena, Offset: 0, Size: 64},
		{ID: 1, Class: plan.Arena, Offset: 32, Size: 64},
		{ID: 2, Class: plan.Arena, Offset: 128, Size: 64},
		{ID: 3, Class: plan.State, Size: 64},                        // not in the arena, so its offset does not matter
		{ID: 4, Class: plan.Arena, Device: 1, Offset: 32, Size: 64}, // in the arena of another device
	}
	use := func(b int, reads, writes bool) touch {
		u := &buffers[b]
		return touch{buffer: u, lo: u.Offset, hi: u.Offset + u.Size, reads: reads, writes: writes}
	}
	steps := [][]touch{
		{use(0, false, true)},                      // 0 writes a
		{use(0, true, false), use(2, false, true)}, // 1 reads a, writes c
		{use(1, false, true)},                      // 2 writes b over a, so it comes after 1 only because of memory
		{use(1, true, false)},                      // 3 reads b
		{use(3, true, true), use(4, false, true)},  // 4 writes a state and on another device: free
		{use(2, true, false), use(0, false, true)}, // 5 reads c, writes a over b: after 3 as well
	}
	var got []string
	for _, l := range dependencies(steps) {
		got = append(got, fmt.Sprint(l.from, "→", l.to, map[bool]string{true: " reuse"}[l.reuse]))
	}
	want := []string{"0→1", "1→2 reuse", "2→3", "1→5", "3→5 reuse"}
	if !slices.Equal(got, want) {
		t.Errorf("links %q, want %q", got, want)
	}
}

// Each wave is one rank, and the ranks go down in execution order.
func TestWavesAreRanks(t *testing.T) {
	for _, o := range []Options{everything, {Layer: -1}, {Layer: 1}} {
		p := plantest.Plan(3)
		out, err := engine.Render(t.Context(), draw(t, p, o), "json")
		if err != nil {
			t.Fatal(err)
		}
		var l struct {
			Objects []struct{ ID, Pos, Shape string }
		}
		if err := json.Unmarshal(out, &l); err != nil {
			t.Fatal(err)
		}
		heights := map[string]map[int]float64{} // by program and wave
		for _, n := range l.Objects {
			program, step, ok := strings.Cut(n.ID, ".step.")
			if !ok {
				continue
			}
			_, y, _ := strings.Cut(n.Pos, ",")
			height, err := strconv.ParseFloat(y, 64)
			if err != nil {
				t.Fatal(err)
			}
			id, _ := strconv.Atoi(step)
			wave := waveOf(p, program, id)
			if heights[program] == nil {
				heights[program] = map[int]float64{}
			}
			if other, ok := heights[program][wave]; ok && other != height {
				t.Errorf("%+v: program %s: steps of wave %d at heights %g and %g", o, program, wave, other, height)
			}
			heights[program][wave] = height
		}
		if len(heights) == 0 {
			t.Errorf("%+v: no steps in the layout", o)
		}
		for program, byWave := range heights {
			for a, ya := range byWave {
				for b, yb := range byWave {
					if a < b && ya <= yb {
						t.Errorf("%+v: program %s: wave %d is not above wave %d", o, program, a, b)
					}
				}
			}
		}
	}
}

func waveOf(p *plan.Plan, program string, step int) int {
	for _, g := range p.Programs {
		if g.Name != program {
			continue
		}
		for w := range g.Waves {
			if step < len(g.Waves[w].Steps) {
				return w
			}
			step -= len(g.Waves[w].Steps)
		}
	}
	return -1
}

func TestPlanFolds(t *testing.T) {
	text := draw(t, plantest.Plan(24), Options{Layer: -1})
	if d := read(t, text); len(d.nodes) != 1+9+3 {
		t.Errorf("%d nodes, want the embedding, the 9 steps of a layer, and the 3 of the head", len(d.nodes))
	}
	for _, want := range []string{
		"×24   blocks 0–23, as block 0", "program decode: T = 1 token,", "arena", "steps [2,4)", "gemv.q5_0", "takes pos, seq, pages",
		", S ≤ 1 sequence, ", "wave 1 · step 3<", "<b>q, k, v</b>", "feeds attn_norm, attn_out of the next block",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
	for _, no := range []string{"prefill", "window 0", "ring 0", "freq_scale 1", "eps 0<", "packed"} {
		if strings.Contains(text, no) {
			t.Errorf("the picture says %q: it is of the first program, without what changes nothing", no)
		}
	}
}

// Layers that differ in the types of their weights only are one kind, and the box names the
// types.
func TestFoldNamesWeightTypes(t *testing.T) {
	p := plantest.Plan(4)
	for i := range p.Weights {
		if p.Weights[i].Name == "blk.2.attn_v.weight" {
			p.Weights[i].Type = "q4_k"
		}
	}
	for i := range p.Programs {
		for _, w := range p.Programs[i].Waves {
			for _, st := range w.Steps {
				for k := range st.Args {
					if st.Args[k].Weight == "blk.2.attn_v.weight" {
						st.Args[k].Kernel = strings.Replace(st.Args[k].Kernel, "q8_0", "q4_k", 1)
					}
				}
			}
		}
	}
	text := draw(t, p, Options{Layer: -1})
	if !strings.Contains(text, "×4   blocks 0–3") || !strings.Contains(text, "gemv.q8_0/gemv.q4_k") {
		t.Errorf("want one cluster of 4 layers with both types, got:\n%s", text)
	}
}

func TestFoldFindsPatterns(t *testing.T) {
	for _, c := range []struct {
		layers string // a letter for each, equal where the layers are
		want   []string
	}{
		{"A", []string{"block 0"}},
		{"AAAA", []string{"×4   blocks 0–3, as block 0"}},
		{"AAAB", []string{"×3   blocks 0–2, as block 0", "block 3"}},
		{"AAABAAAB", []string{"blocks 0–7: the pattern below ×2", "×3   blocks 0–2, 4–6, as block 0", "blocks 3, 7, as block 3"}},
		{"AABAABAAC", []string{"blocks 0–5: the pattern below ×2", "×2   blocks 0–1, 3–4, as block 0", "blocks 2, 5, as block 2", "×2   blocks 6–7, as block 6", "block 8"}},
		{"ABABAB", []string{"blocks 0–5: the pattern below ×3", "blocks 0, 2, 4, as block 0", "blocks 1, 3, 5, as block 1"}},
		{"CABABD", []string{"block 0", "blocks 1–4: the pattern below ×2", "blocks 1, 3, as block 1", "blocks 2, 4, as block 2", "block 5"}},
	} {
		p := &picture{boxes: []box{{layer: outside}}}
		for l, kind := range c.layers {
			p.boxes = append(p.boxes, box{layer: l, shape: string(kind)})
			p.link(l, l+1, "f32 T×8", false)
		}
		q := fold(p)
		var got []string
		var walk func([]cluster)
		walk = func(list []cluster) {
			for _, c := range list {
				if c.label != "" {
					got = append(got, c.label)
				}
				walk(c.inner)
			}
		}
		walk(q.groups)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: clusters %q, want %q", c.layers, got, c.want)
		}
		for _, l := range q.links {
			if from, to := q.boxes[l.from].layer, q.boxes[l.to].layer; from >= to {
				t.Errorf("%s: a link leads back from block %d to %d", c.layers, from, to)
			}
		}
	}
}

// A model whose layers all differ exceeds the limit.
func TestLimit(t *testing.T) {
	p := &picture{title: []string{"many"}}
	for l := range 500 {
		p.boxes = append(p.boxes, box{id: fmt.Sprint(l), layer: l, rank: -1, shape: fmt.Sprint(l)})
		if l > 0 {
			p.link(l-1, l, "f32 T×8", false)
		}
	}
	q, err := p.finish(Options{Layer: -1})
	if err != nil {
		t.Fatal(err)
	}
	text := q.dot()
	if d := read(t, text); len(d.nodes) != 400 || len(d.links) != 399 {
		t.Errorf("%d nodes and %d links, want 400 and 399", len(d.nodes), len(d.links))
	}
	if !strings.Contains(text, "100 of 500 boxes are not drawn") {
		t.Error("the picture does not say that something is missing")
	}
}

// layered is the text of a graph of n layers with states, a residual stream and a selection.
func layered(n int) string {
	var b strings.Builder
	b.WriteString("graph test (T <= 32, S <= 1, R <= 4, C <= 64)\n")
	b.WriteString("  @w : f32[64]\n  @m : q8_0[64, 64]\n  @table : q8_0[100, 64]\n")
	b.WriteString("  %tokens : i32[T] = input {dtype: \"i32\", sym: \"T\"}\n  %pos : i32[T] = input {dtype: \"i32\", sym: \"T\"}\n")
	b.WriteString("  %seq : i32[T] = input {dtype: \"i32\", sym: \"T\"}\n  %rows : i32[R] = input {dtype: \"i32\", sym: \"R\"}\n")
	b.WriteString("  %x : f32[T, 64] = get_rows @table, %tokens\n")
	last := "x"
	for l := range n {
		p := fmt.Sprintf("blk.%d.", l)
		fmt.Fprintf(&b, "  %%%snorm : f32[T, 64] = rms_norm %%%s, @w {eps: 1e-06}\n", p, last)
		fmt.Fprintf(&b, "  %%%sk : f32[T, 64] = matmul %%%snorm, @m, _\n", p, p)
		fmt.Fprintf(&b, "  %%%scache : kv[C, 64] = state {width: 64, window: 0}\n", p)
		fmt.Fprintf(&b, "  %%%scache.new : kv[C, 64] = kv_write %%%scache, %%%sk, %%pos, %%seq\n", p, p, p)
		fmt.Fprintf(&b, "  %%%sscores : f32[T, 4, C] = attn_scores %%%snorm, %%%scache.new, %%pos, %%seq {head_dim: 16, heads: 4, kv_heads: 4, scale: 0.25, window: 0}\n", p, p, p)
		fmt.Fprintf(&b, "  %%%svalues : f32[T, 64] = attn_values %%%sscores, %%%scache.new, %%pos, %%seq {head_dim: 16, heads: 4, kv_heads: 4, window: 0}\n", p, p, p)
		fmt.Fprintf(&b, "  %%%sout : f32[T, 64] = add %%%s, %%%svalues\n", p, last, p)
		last = p + "out"
	}
	fmt.Fprintf(&b, "  %%picked : f32[R, 64] = select_rows %%%s, %%rows\n  output %%picked\n", last)
	return b.String()
}

func parseGraph(t *testing.T, text string) *graph.Graph {
	t.Helper()
	g, err := graph.Parse(text, ops.Lookup)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return g
}

func TestGraphOfEverything(t *testing.T) {
	g := parseGraph(t, layered(3))
	text, err := Graph(g, everything)
	if err != nil {
		t.Fatal(err)
	}
	d := read(t, text)
	want := map[[2]string]int{}
	for _, n := range g.Nodes {
		id := "node." + n.Out[0].Name
		if label := d.attrs[id]; !strings.Contains(label, n.Op.Name) {
			t.Errorf("node %s: label %q, want the op %s", id, label, n.Op.Name)
		}
		for _, v := range n.In {
			if v != nil && v.Def != nil {
				key := [2]string{"node." + v.Def.Out[0].Name, id}
				want[key]++
				if shape := strings.ReplaceAll(strings.Trim(v.Type.String()[strings.IndexByte(v.Type.String(), '['):], "[]"), ", ", "×"); !strings.Contains(d.links[key].label, shape) {
					t.Errorf("link %v: label %q, want %s", key, d.links[key].label, shape)
				}
			} else if v != nil && !strings.Contains(d.attrs[id], v.Name) {
				t.Errorf("node %s: label %q, want the weight %s", id, d.attrs[id], v.Name)
			}
		}
	}
	if len(d.nodes) != len(g.Nodes) {
		t.Errorf("%d nodes, want %d", len(d.nodes), len(g.Nodes))
	}
	for key, l := range d.links {
		if want[key] == 0 {
			t.Errorf("link %v: no node takes such a value", key)
		}
		if l.style == "dashed" {
			t.Errorf("link %v is dashed, but a graph has no memory", key)
		}
		delete(want, key)
	}
	for key := range want {
		t.Errorf("no link %v", key)
	}
}

func TestGraphFolds(t *testing.T) {
	text, err := Graph(parseGraph(t, layered(30)), Options{Layer: -1, Title: "A title"})
	if err != nil {
		t.Fatal(err)
	}
	// The embedding, 7 nodes of a layer, the selection; inputs are lines in the boxes.
	if d := read(t, text); len(d.nodes) != 1+7+1 {
		t.Errorf("%d nodes, want 9", len(d.nodes))
	}
	for _, want := range []string{"×30   blocks 0–29", "A title", "takes pos, seq", "takes tokens", "cylinder"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
}

// A selection that is named after one block and read by the next does not make the blocks differ.
func TestSelectionBelongsToItsTaker(t *testing.T) {
	p := &picture{boxes: []box{
		{layer: 0, kind: "elementwise"}, {layer: 0, kind: rowsKind}, {layer: 1, kind: "matmul"}, {layer: 1, kind: rowsKind}, {layer: outside, kind: "norm"},
	}, links: []link{{from: 0, to: 1}, {from: 1, to: 2}, {from: 2, to: 3}, {from: 3, to: 4}}}
	p.moveSelections()
	var got []int
	for _, b := range p.boxes {
		got = append(got, b.layer)
	}
	if want := []int{0, 1, 1, 1, outside}; !slices.Equal(got, want) {
		t.Errorf("layers %v, want %v", got, want)
	}
}

func TestOneLayer(t *testing.T) {
	p := plantest.Plan(3)
	d := read(t, draw(t, p, Options{Layer: 1}))
	if len(d.nodes) != 9 {
		t.Errorf("%d nodes, want the 9 steps of block 1 in the first program", len(d.nodes))
	}
	for id, want := range map[string]string{
		"decode.step.10": "takes ffn_out of block 0<", "decode.step.14": "takes ffn_out of block 0<", "decode.step.18": "feeds attn_norm, attn_out of block 2<",
	} {
		if !strings.Contains(d.attrs[id], want) {
			t.Errorf("%s does not say %q: %s", id, want, d.attrs[id])
		}
	}
	if d := read(t, draw(t, p, Options{Layer: 2})); !strings.Contains(d.attrs["decode.step.27"], "feeds") || strings.Contains(d.attrs["decode.step.27"], "of block") {
		t.Errorf("the last block's out feeds the head: %s", d.attrs["decode.step.27"])
	}
	if d := read(t, draw(t, p, Options{Layer: 1, All: true})); len(d.nodes) != 18 {
		t.Errorf("%d nodes, want the 9 steps of block 1 in both programs", len(d.nodes))
	}
	g := parseGraph(t, layered(3))
	text, err := Graph(g, Options{Layer: 2})
	if err != nil {
		t.Fatal(err)
	}
	if d := read(t, text); len(d.nodes) != 7 || !strings.Contains(d.attrs["node.blk.2.norm"], "takes out") {
		t.Errorf("nodes %q, want the 7 of block 2, and the first to name what it takes", d.nodes)
	}
}

// The legend explains each kind of link and border that occurs.
func TestLegend(t *testing.T) {
	const output, reuse = ">output<", "only reuse of memory"
	for _, c := range []struct {
		name string
		p    picture
		want []string
	}{
		{"plain", picture{boxes: []box{{id: "a"}, {id: "b"}}, links: []link{{from: 0, to: 1}}}, nil},
		{"output", picture{boxes: []box{{id: "a", output: true}}}, []string{output}},
		{"reuse", picture{boxes: []box{{id: "a"}, {id: "b"}}, links: []link{{from: 0, to: 1, reuse: true}}}, []string{reuse}},
	} {
		for _, entry := range []string{output, reuse} {
			if got, want := strings.Contains(string(c.p.label()), entry), slices.Contains(c.want, entry); got != want {
				t.Errorf("%s: legend has %q is %v, want %v", c.name, entry, got, want)
			}
		}
		var b bytes.Buffer
		if err := Render(c.p.dot(), "png", &b); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A plan made by hand may have arbitrary block numbers.
func TestAbsurdLayers(t *testing.T) {
	const far = math.MaxInt
	p := &picture{boxes: []box{{id: "a", layer: 3, shape: "x"}, {id: "b", layer: far - 1, shape: "y"}, {id: "c", layer: far, shape: "z"}}}
	p.link(0, 1, "f32 T×8", false)
	p.link(1, 2, "f32 T×8", false)
	for _, o := range []Options{everything, {Layer: -1}, {Layer: far}} {
		q, err := p.finish(o)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("block %d", far); q.groups[len(q.groups)-1].label != want && !strings.Contains(q.dot(), want) {
			t.Errorf("%+v: no frame %q", o, want)
		}
	}
}

// The blocks of a graph are next to each other: the second is not below the first.
func TestBlocksSideBySide(t *testing.T) {
	g := parseGraph(t, strings.ReplaceAll(layered(2), "%blk.1.out : f32[T, 64] = add %blk.0.out, %blk.1.values",
		"%blk.1.sum : f32[T, 64] = add %blk.0.out, %blk.1.values\n  %blk.1.out : f32[T, 64] = add %blk.1.sum, %blk.1.values"))
	text, err := Graph(g, Options{Layer: -1})
	if err != nil {
		t.Fatal(err)
	}
	out, err := engine.Render(t.Context(), text, "json")
	if err != nil {
		t.Fatal(err)
	}
	var l struct {
		Objects []struct{ ID, Pos string }
	}
	if err := json.Unmarshal(out, &l); err != nil {
		t.Fatal(err)
	}
	at := map[string][2]float64{}
	for _, o := range l.Objects {
		var p [2]float64
		if _, err := fmt.Sscanf(o.Pos, "%g,%g", &p[0], &p[1]); err == nil {
			at[o.ID] = p
		}
	}
	end, next := at["node.blk.0.out"], at["node.blk.1.norm"]
	if end == next || next[1] <= end[1] || at["node.picked"][1] >= at["node.blk.1.out"][1] {
		t.Errorf("block 0 ends at %v, block 1 starts at %v, want it higher; the selection at %v, want it below %v",
			end, next, at["node.picked"], at["node.blk.1.out"])
	}
}

func TestErrors(t *testing.T) {
	p := plantest.Plan(2)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Layer: 2}, "block 2 does not exist, expected one from 0 to 1"},
		{Options{Layer: -1, Program: "train"}, `program "train" does not exist, expected one of ["decode" "prefill"]`},
	} {
		if _, err := Plan(p, c.o); err == nil || err.Error() != c.want {
			t.Errorf("%+v: error %v, want %s", c.o, err, c.want)
		}
	}
	if _, err := Graph(parseGraph(t, layered(1)), Options{Layer: 7}); err == nil {
		t.Error("no error for block 7 of a graph with one")
	}
	p.Programs[0].Waves[0].Steps[0].Args[0].Buffer = 1 << 30
	if _, err := Plan(p, Options{Layer: -1}); err == nil {
		t.Error("drew a plan that does not verify")
	}
	if err := Render("digraph {}", "gif", &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "gif") {
		t.Errorf("format gif: error %v", err)
	}
	if err := Render("digraph {", "svg", &bytes.Buffer{}); err == nil {
		t.Error("rendered half a text")
	}
}

func TestBoundaries(t *testing.T) {
	if d := read(t, draw(t, plantest.Plan(0), Options{Layer: -1})); len(d.nodes) != 4 {
		t.Errorf("%d nodes of a model without layers, want 4", len(d.nodes))
	}
	text, err := Graph(&graph.Graph{Name: "empty"}, Options{Layer: -1})
	if err != nil {
		t.Fatal(err)
	}
	if d := read(t, text); len(d.nodes) != 0 {
		t.Errorf("%d nodes of an empty graph", len(d.nodes))
	}
}

// Names come from model files.
func TestAwkwardNames(t *testing.T) {
	p := plantest.Plan(1)
	p.Model.Name = "<b>&amp; \"quoted\" \\N \xff\x00\x1b[31m ]]> 模型 " + strings.Repeat("long ", 100)
	for i := range p.Programs {
		for _, w := range p.Programs[i].Waves {
			for j := range w.Steps {
				w.Steps[j].Name = "</table>\\l{|}<" + w.Steps[j].Name + "\n\t\xfe"
			}
		}
	}
	text := draw(t, p, everything)
	if d := read(t, text); len(d.nodes) != 26 {
		t.Errorf("%d nodes, want 26", len(d.nodes))
	}
	var svg bytes.Buffer
	if err := Render(text, "svg", &svg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"模型", "&lt;/table&gt;", "…"} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("the svg has no %q", want)
		}
	}
	if strings.Contains(svg.String(), "\x1b") {
		t.Error("the svg has control characters")
	}
}

func TestDeterministic(t *testing.T) {
	g := parseGraph(t, layered(4))
	for _, o := range []Options{everything, {Layer: -1}, {Layer: 1}} {
		first := draw(t, plantest.Plan(4), o)
		graphFirst, err := Graph(g, o)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if draw(t, plantest.Plan(4), o) != first {
				t.Fatalf("%+v: two texts for one plan", o)
			}
			if again, _ := Graph(g, o); again != graphFirst {
				t.Fatalf("%+v: two texts for one graph", o)
			}
		}
	}
}

func TestRender(t *testing.T) {
	text := draw(t, plantest.Plan(2), Options{Layer: -1})
	var svg, picture bytes.Buffer
	if err := Render(text, "svg", &svg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", `id="decode.step.3"`, "Helvetica", "×2"} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("the svg has no %q", want)
		}
	}
	if err := Render(text, "png", &picture); err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(&picture)
	if err != nil {
		t.Fatal(err)
	}
	// The picture must have the fill and the line of a product, and most other pixels must be
	// background. This detects filled curves, which the engine's own png has.
	matmul := styleOf("matmul")
	count := map[[3]uint32]int{}
	b := m.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := m.At(x, y).RGBA()
			count[[3]uint32{r >> 8, g >> 8, bl >> 8}]++
		}
	}
	pixels := func(c string) int {
		r, g, b, _ := parseColor(c).RGBA()
		return count[[3]uint32{r >> 8, g >> 8, b >> 8}]
	}
	total := b.Dx() * b.Dy()
	if n := pixels(matmul.fill); n < total/100 {
		t.Errorf("%d of %d pixels are filled as a product", n, total)
	}
	if n := pixels(matmul.line); n == 0 {
		t.Error("no pixel of a product's border")
	}
	if n := pixels("#7A8699"); n == 0 || n > total/50 {
		t.Errorf("%d of %d pixels are links, want some and few", n, total)
	}
}

// Every kernel and every op has a color.
func TestEverythingHasAKind(t *testing.T) {
	for _, sig := range plan.Kernels() {
		if kindOfKernel(sig.Name) == otherKind {
			t.Errorf("kernel %s has no kind, expected its name in a row of kinds in kind.go", sig.Name)
		}
	}
	for _, row := range ops.Table() {
		if kindOfOp(row.Op) == otherKind {
			t.Errorf("op %s has the kind %q in ops/table.go, expected a name of kinds in kind.go", row.Op.Name, row.Kind)
		}
	}
	if kindOfKernel("nothing") != otherKind || kindOfOp(&graph.Op{Name: "add"}) != otherKind || kindOfKernel("ref.add") != "reference kernel" {
		t.Error("an unknown name or a reference kernel has a color of its own")
	}
}

// A dot text is named after the model and the drawn part, for any model name.
func TestNameOfText(t *testing.T) {
	p := plantest.Plan(1)
	for name, want := range map[string]string{"tiny": "tiny", `a "b" \`: `a "b" /`, "\x00": "\uFFFD"} {
		for _, o := range []Options{{Title: name, Layer: -1}, {Title: name, Layer: 0}, {Title: name, Layer: -1, All: true}} {
			of := ", decode"
			if o.All {
				of = ", decode, prefill"
			}
			g, err := graphviz.ParseBytes([]byte(draw(t, p, o)))
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			if got, err := g.Name(); err != nil || got != want+of {
				t.Errorf("%+v: the text is named %q, %v, want %q", o, got, err, want+of)
			}
			g.Close()
		}
	}
	for stage, of := range map[string]string{"": ", graph {", "fused": ", fused {"} {
		text, err := Graph(parseGraph(t, layered(2)), Options{Title: "tiny", Stage: stage, Layer: -1})
		if err != nil || !strings.HasPrefix(text, `digraph "tiny`+of[:len(of)-2]+`" {`) {
			t.Errorf("stage %q: %.60s, %v", stage, text, err)
		}
		for _, words := range []string{"T ≤ 32 tokens, S ≤ 1 sequence, R ≤ 4 rows of logits, C ≤ 64 positions of context", ">KV cache<"} {
			if !strings.Contains(text, words) {
				t.Errorf("the picture does not say %q", words)
			}
		}
	}
}
