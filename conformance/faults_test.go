package conformance

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"pesti/conformance/testenv"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/graph"
	"pesti/ops"
)

// faultLayer is the layer of a fault that is confined to one layer.
const faultLayer = 3

// A fault changes a pass in a way that a program could plausibly get wrong: an edit of the graph,
// of a weight, or of the cache between two chunks of the prompt.
type fault struct {
	name    string
	model   string
	first   int // the first layer that may differ
	graph   func(t *testing.T, g *graph.Graph)
	weights map[string]func(p *graph.Attrs, w []float32, rows, length int)
	between func(t *testing.T, e *exec.Engine)
}

// faults lists the faults. The bounds that a correct pass meets must catch each of them.
var faults = []fault{
	{name: "K bias dropped in one layer", model: "demo", first: faultLayer, graph: dropKBias},
	{name: "SiLU squared", model: "demo", graph: squareSiLU},
	{name: "erf for tanh GELU", model: testenv.Gemma, graph: swapGELU},
	{name: "RoPE base × 1.01 in one layer", model: "demo", first: faultLayer, graph: scaleRopeBase},
	{name: "positions of queries + 1 in one layer", model: "demo", first: faultLayer,
		weights: map[string]func(*graph.Attrs, []float32, int, int){"attn_q.weight": turnQueries, "attn_q.bias": turnQueries}},
	{name: "wrong KV head in one layer", model: "demo", first: faultLayer,
		weights: map[string]func(*graph.Attrs, []float32, int, int){"attn_k.weight": swapHeads, "attn_k.bias": swapHeads}},
	{name: "norm epsilon × 10", model: "demo", graph: scaleEps},
	{name: "one page of KV stale in one layer", model: "demo", first: faultLayer, between: spoilPage},
}

func TestSeededFaults(t *testing.T) {
	if len(faults) != 8 {
		t.Fatalf("%d faults, want 8", len(faults))
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			m := openModel(t, f.model)
			ids := m.prompt(t, "tides")
			oracle := askOracle(t, m.path, ids, 0)
			sound := compare(m.pass(t, ids, 32, nil, nil), oracle)
			if !sound.passes() {
				t.Fatalf("without the fault: %v", sound)
			}
			v := compare(m.faulty(t, ids, f), oracle)
			t.Log(v)
			if v.worst <= 1 {
				t.Errorf("not caught: %v", v)
			}
			// The layers before the fault are unchanged.
			for l := range f.first {
				if v.layers[l] != sound.layers[l] {
					t.Errorf("layer %d changed, the fault is in layer %d", l, f.first)
				}
			}
		})
	}
}

// faulty evaluates ids with a fault.
func (m *model) faulty(t *testing.T, ids []int32, f fault) *ourPass {
	t.Helper()
	var edit func(*graph.Graph)
	var between func(*exec.Engine)
	if f.graph != nil {
		edit = func(g *graph.Graph) { f.graph(t, g) }
	}
	if f.between != nil {
		between = func(e *exec.Engine) { f.between(t, e) }
	}
	if f.weights != nil {
		m = m.spoil(t, f.weights)
	}
	return m.pass(t, ids, 32, edit, between)
}

func inLayer(name string) string { return fmt.Sprintf("blk.%d.%s", faultLayer, name) }

func node(t *testing.T, g *graph.Graph, name string) *graph.Node {
	t.Helper()
	v := g.Value(name)
	if v == nil {
		t.Fatalf("the graph has no value %s", name)
	}
	return v.Def
}

func dropKBias(t *testing.T, g *graph.Graph) {
	n := node(t, g, inLayer("k"))
	if n.Op != ops.AddBias {
		t.Fatalf("%s is a %s", n.Name(), n.Op.Name)
	}
	g.ReplaceUses(n.Out[0], n.In[0])
	g.Remove(n)
	g.Renumber()
}

func squareSiLU(t *testing.T, g *graph.Graph) {
	uses, changed := g.Uses(), 0
	for _, n := range append([]*graph.Node(nil), g.Nodes...) {
		if n.Op != ops.SiLU {
			continue
		}
		product := uses[n.Out[0]][0]
		out, err := g.Insert(product, ops.Mul, []*graph.Value{n.Out[0], n.Out[0]}, nil, n.Name()+".squared")
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range product.In {
			if v == n.Out[0] {
				product.In[i] = out[0]
			}
		}
		changed++
	}
	g.Renumber()
	if changed == 0 {
		t.Fatal("no silu")
	}
}

func swapGELU(t *testing.T, g *graph.Graph) {
	changed := 0
	for _, n := range g.Nodes {
		if n.Op == ops.GELUTanh {
			n.Op = ops.GELUErf
			changed++
		}
	}
	if changed == 0 {
		t.Fatal("no gelu_tanh")
	}
}

func scaleRopeBase(t *testing.T, g *graph.Graph) {
	for _, name := range []string{"q_rope", "k_rope"} {
		n := node(t, g, inLayer(name))
		n.Attr["base"] = n.Attr.Float("base") * 1.01
	}
}

func scaleEps(_ *testing.T, g *graph.Graph) {
	for _, n := range g.Nodes {
		if n.Op == ops.RMSNorm {
			n.Attr["eps"] = n.Attr.Float("eps") * 10
		}
	}
}

// turnQueries rotates each head by the angles of one position (halves, as in qwen2). Rotations add,
// so RoPE at p of the result is RoPE at p + 1 of the original.
func turnQueries(rope *graph.Attrs, w []float32, rows, length int) {
	dim := int(rope.Int("head_dim"))
	for head := 0; head < rows; head += dim {
		for i := range dim / 2 {
			angle := math.Pow(rope.Float("base"), -2*float64(i)/float64(dim))
			sin, cos := math.Sincos(angle)
			a, b := w[(head+i)*length:][:length], w[(head+i+dim/2)*length:][:length]
			for j := range length {
				x, y := float64(a[j]), float64(b[j])
				a[j], b[j] = float32(x*cos-y*sin), float32(x*sin+y*cos)
			}
		}
	}
}

// swapHeads swaps the first two heads.
func swapHeads(rope *graph.Attrs, w []float32, rows, length int) {
	n := int(rope.Int("head_dim")) * length
	for i := range n {
		w[i], w[n+i] = w[n+i], w[i]
	}
}

// spoilPage zeroes the first page of a layer's keys, as if it had not been written.
func spoilPage(t *testing.T, e *exec.Engine) {
	state, err := e.State(inLayer("cache_k"))
	if err != nil {
		t.Fatal(err)
	}
	pages := (int(e.Plan().Target.Ctx) + plan.PageTokens - 1) / plan.PageTokens
	clear(state[:len(state)/pages])
}

// spoil writes the model with some weights of the fault's layer changed, and opens it. The changed
// weights are stored in float32, so that no rounding changes them further.
func (m *model) spoil(t *testing.T, edits map[string]func(*graph.Attrs, []float32, int, int)) *model {
	t.Helper()
	heads, err := m.file.Uint("qwen2.attention.head_count")
	if err != nil {
		t.Fatal(err)
	}
	embd, err := m.file.Uint("qwen2.embedding_length")
	if err != nil {
		t.Fatal(err)
	}
	base, err := m.file.Float("qwen2.rope.freq_base")
	if err != nil {
		t.Fatal(err)
	}
	rope := graph.Attrs{"head_dim": int64(embd / heads), "base": base}
	w := gguf.NewWriter()
	w.SetAll(m.file)
	changed := 0
	for _, tensor := range m.file.Tensors() {
		edit := edits[tensor.Name[min(len(tensor.Name), len(inLayer(""))):]]
		if edit == nil || tensor.Name[:len(inLayer(""))] != inLayer("") {
			w.AddTensor(tensor.Name, tensor.Type, tensor.Dims, m.file.Bytes(&tensor))
			continue
		}
		data, err := m.file.Values(&tensor, 0, tensor.Rows())
		if err != nil {
			t.Fatal(err)
		}
		rows, length := int(tensor.Dims[0]), 1
		if len(tensor.Dims) == 2 {
			rows, length = int(tensor.Dims[1]), int(tensor.Dims[0])
		}
		edit(&rope, data, rows, length)
		raw := make([]byte, quant.RowBytes(quant.F32, int64(len(data))))
		info, _ := quant.Lookup(quant.F32)
		info.Quantize(raw, data)
		w.AddTensor(tensor.Name, quant.F32, tensor.Dims, raw)
		changed++
	}
	if changed != len(edits) {
		t.Fatalf("%d tensors changed, expected %d", changed, len(edits))
	}
	path := filepath.Join(t.TempDir(), "spoilt.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return openFile(t, m.name, path)
}
