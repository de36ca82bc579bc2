package graph_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pesti/graph"
	"pesti/ops"
)

// text is one attention block with its state, printed as Print does.
const text = `graph sample (T <= 8, S <= 2, R <= 4, C <= 32)
  @embd.weight       : q4_0[10, 64]
  @blk.0.q.weight    : q8_0[64, 64]
  @blk.0.k.weight    : f32[32, 64]
  @"odd name.weight" : f32[32, 64]
  @norm              : f32[64]

  %tokens : i32[T]     = input {dtype: "i32", sym: "T"}
  %pos    : i32[T]     = input {dtype: "i32", sym: "T"}
  %seq    : i32[T]     = input {dtype: "i32", sym: "T"}
  %rows   : i32[R]     = input {dtype: "i32", sym: "R"}
  %embd   : f32[T, 64] = get_rows @embd.weight, %tokens {scale: 8.0}

  %blk.0.norm    : f32[T, 64] = rms_norm %embd, @norm {eps: 1e-06}
  %blk.0.q, %blk.0.k, %blk.0.v : f32[T, 64], f32[T, 32], f32[T, 32] = qkv %blk.0.norm, @blk.0.q.weight, @blk.0.k.weight, @"odd name.weight", _, _, _
  %blk.0.cache_k : kv[C, 32]  = state {width: 32}
  %blk.0.cache_v : kv[C, 32]  = state {width: 32}
  %blk.0.attn, %blk.0.cache_k.new, %blk.0.cache_v.new : f32[T, 64], kv[C, 32], kv[C, 32] = attention %blk.0.q, %blk.0.k, %blk.0.v, %pos, %seq, %blk.0.cache_k, %blk.0.cache_v, _, _, _ {base: 10000.0, head_dim: 32, heads: 2, kv_heads: 1, layout: "halves", rot: 32, scale: 0.25}

  %sum : f32[T, 64] = add %embd, %blk.0.attn
  %out : f32[R, 64] = select_rows %sum, %rows

  output %out, %sum
`

func parse(t *testing.T, text string) *graph.Graph {
	t.Helper()
	g, err := graph.Parse(text, ops.Lookup)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestTextRoundTrip(t *testing.T) {
	g := parse(t, text)
	if err := graph.Verify(g); err != nil {
		t.Fatal(err)
	}
	if got := graph.Print(g); got != text {
		t.Errorf("printed\n%s\nexpected\n%s", got, text)
	}
	again := parse(t, graph.Print(g.Clone()))
	if err := graph.Equal(g, again); err != nil {
		t.Error(err)
	}
}

// A node prints its device if it is not 0, with or without attributes.
func TestDevicesRoundTrip(t *testing.T) {
	const far = `graph far (T <= 8, C <= 8)
  @table : f32[9, 4]
  @w     : f32[4]

  %tokens : i32[T]    = input {dtype: "i32", sym: "T"}
  %cache  : kv[C, 4]  = state {width: 4} on 2
  %embd   : f32[T, 4] = get_rows @table, %tokens
  %there  : f32[T, 4] = transfer %embd on 1
  %norm   : f32[T, 4] = rms_norm %there, @w {eps: 1e-06} on 1

  output %norm
`
	g := parse(t, far)
	if err := graph.Verify(g); err != nil {
		t.Fatal(err)
	}
	if got := graph.Print(g); got != far {
		t.Errorf("printed\n%s\nexpected\n%s", got, far)
	}
	again := parse(t, graph.Print(g.Clone()))
	if err := graph.Equal(g, again); err != nil {
		t.Error(err)
	}
	again.Nodes[3].Device = 2
	if err := graph.Equal(g, again); err == nil || !strings.Contains(err.Error(), "devices differ: 1 and 2") {
		t.Errorf("error %v, expected other devices", err)
	}
	for _, c := range []struct{ old, new, want string }{
		{" on 1\n\n  output", "\n\n  output", "node norm (rms_norm): operand x is %there on device 1, expected device 0"},
		{"transfer %embd on 1", "scale %embd {factor: 1.0} on 1", "node there (scale): operand x is %embd on device 0, expected device 1"},
		{"on 2", "on -1", "found -1, expected the number of a device"},
		{"on 2", "on 65536", "found 65536, expected the number of a device"},
		{"on 2", "on", "found the end of the line, expected the number of a device"},
		{"on 2", "at 2", "found at, expected the end of the line"},
	} {
		g, err := graph.Parse(strings.Replace(far, c.old, c.new, 1), ops.Lookup)
		if err == nil {
			err = graph.Verify(g)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, expected %q", c.new, err, c.want)
		}
	}
}

func TestAttributesRoundTrip(t *testing.T) {
	kinds := &graph.Op{Name: "kinds", Out: 1}
	lookup := func(string) (*graph.Op, bool) { return kinds, true }
	for _, v := range []any{
		int64(0), int64(-1), int64(math.MaxInt64), int64(math.MinInt64), true, false,
		"", "a b", "\"quoted\"\n\x00\xff", "true", "1",
		0.0, math.Copysign(0, -1), 1.0, -3.0, 1e-6, 0.1, 1e21, math.MaxFloat64, math.SmallestNonzeroFloat64,
		math.Inf(1), math.Inf(-1), math.NaN(), math.Pi,
	} {
		n := &graph.Node{Op: kinds, Attr: graph.Attrs{"x": v, "odd name": int64(1)}}
		n.Out = []*graph.Value{{Name: "v", Def: n, Type: graph.Type{DType: "f32"}}}
		g := graph.New("g")
		g.Nodes = append(g.Nodes, n)
		back, err := graph.Parse(graph.Print(g), lookup)
		if err != nil {
			t.Errorf("%v (%T): %v in\n%s", v, v, err, graph.Print(g))
		} else if err := graph.Equal(g, back); err != nil {
			t.Errorf("%v (%T): %v", v, v, err)
		}
	}
}

func TestAttrsEqualIsStrict(t *testing.T) {
	a := graph.Attrs{"x": 0.0}
	for _, b := range []graph.Attrs{{}, {"x": int64(0)}, {"y": 0.0}, {"x": 0.0, "y": 0.0}, {"x": math.Copysign(0, -1)}, {"x": math.NaN()}, {"x": "0.0"}} {
		if a.Equal(b) || b.Equal(a) {
			t.Errorf("%v equals %v", a, b)
		}
	}
}

// Each edit of the sample must be refused with an error that contains the given words.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"graph sample", "grph sample", "1:1: found grph, expected the word graph"},
		{"(T <= 8", "(Q <= 8", "1:15: found Q, expected one of the symbols"},
		{"T <= 8", "T < 8", `1:17: found "<"`},
		{"T <= 8", "T <= x", "1:20: found x, expected a bound, an integer"},
		{"R <= 4, C <= 32)", "R <= 4", `found the end of the line, expected ")"`},
		{"q4_0[10, 64]", "q4_0[10, 64", `found the end of the line, expected "]"`},
		{"q4_0[10, 64]", "q4_0[10, Z]", "found Z, expected one of the symbols"},
		{"q4_0[10, 64]", "q4_0[10, 64] x", "found x, expected the end of the line"},
		{"@norm ", "@embd.weight ", "6:3: found a second definition of @embd.weight"},
		{"  %pos ", "  %tokens ", "9:3: found a second definition of %tokens"},
		{"= get_rows", "= get_row", "found get_row, expected the name of an op"},
		{"get_rows @embd.weight", "get_rows %embd.weight", "found %embd.weight, expected a value that is defined above"},
		{"rms_norm %embd", "rms_norm %blk.0.norm", "found %blk.0.norm, expected a value that is defined above"},
		{"rms_norm %embd,", "rms_norm ,", `14:42: found ",", expected the end of the line`},
		{"rms_norm %embd,", "rms_norm %embd, x,", "found x, expected %value, @weight or _"},
		{"eps: 1e-06", "eps: 1e-06, eps: 2.0", "found attribute eps twice"},
		{"eps: 1e-06", "eps: abc", "found abc, expected a number"},
		{"eps: 1e-06", "eps: 1e999", "found 1e999, expected a number between -1.79"},
		{"eps: 1e-06}", "eps: 1e-06", `found the end of the line, expected "}"`},
		{"eps: 1e-06", "eps 1e-06", `expected ":" and a value`},
		{`"halves"`, `"halves`, "expected a closing \""},
		{", kv[C, 32] = attention", " = attention", "expected a type for each of 3 results"},
		{"output %out", "output out", "found out, expected %value"},
		{"output %out", "outputs %out", "found outputs, expected @weight, %value or output"},
		{"= add", "= add !", `found "!"`},
	} {
		edited := strings.Replace(text, c.old, c.new, 1)
		if edited == text {
			t.Fatalf("%q is not in the sample", c.old)
		}
		_, err := graph.Parse(edited, ops.Lookup)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q → %q: error %v, expected %s", c.old, c.new, err, c.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than one line", err)
		}
	}
	for _, text := range []string{"", "\n", "graph", "graph g", "graph g (", "graph \"", "#", "graph g () x"} {
		if _, err := graph.Parse(text, ops.Lookup); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestParseTakesComments(t *testing.T) {
	g := parse(t, "# a comment\n\n"+strings.ReplaceAll(text, "\n", " # more\r\n")+"# the end")
	if err := graph.Equal(g, parse(t, text)); err != nil {
		t.Error(err)
	}
}

// Each edit of the sample parses, but must be refused by the verifier.
func TestVerifyText(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"@norm              : f32[64]", "@norm : f32[63]", "node blk.0.norm (rms_norm): operand w is @norm of type f32[63], expected 64 elements"},
		{"q4_0[10, 64]", "q4_9[10, 64]", "weight embd.weight: has element type q4_9"},
		{"q4_0[10, 64]", "q8x2[10, 64]", "weight embd.weight: has element type q8x2"},
		{"q4_0[10, 64]", "q8[10, 64]", "weight embd.weight: has element type q8,"},
		{"q4_0[10, 64]", "q4_0[T, 64]", "expected constant extents"},
		{"q4_0[10, 64]", "q4_0[-1, 64]", "expected constant extents"},
		{"S <= 2", "T <= 2", "bound T <= 2 is negative, or the symbol has two bounds"},
		{"eps: 1e-06", "eps: 1", "node blk.0.norm (rms_norm): attribute eps is 1, expected a number with a point or an exponent, like 1.0"},
		{"{eps: 1e-06}", "", "attribute eps is absent, expected a number with a point"},
		{"eps: 1e-06", "eps: 1e-06, esp: 1.0", "attribute esp is unknown"},
		{"rms_norm %embd, @norm", "rms_norm %embd", "has 1 operands, expected 2"},
		{"rms_norm %embd, @norm", "rms_norm %embd, @norm, @norm", "has 3 operands, expected 2"},
		{"rms_norm %embd, @norm", "rms_norm %embd, _", "operand w is absent"},
		{"rms_norm %embd,", "rms_norm %tokens,", "operand x is %tokens of type i32[T], expected element type f32"},
		{"%sum : f32[T, 64]", "%sum : f32[T, 65]", "result %sum has type f32[T, 65], expected f32[T, 64]"},
		{"add %embd, %blk.0.attn", "add %embd, %blk.0.k", "operand b is %blk.0.k of type f32[T, 32], expected dim 1 (n) = 64"},
		{"heads: 2", "heads: 3", "expected dim 1 (heads*head_dim) = 96"},
		{"heads: 2, kv_heads: 1", "heads: 2, kv_heads: 0", "positive multiple of kv_heads"},
		{"heads: 2, kv_heads: 1", "heads: 4611686018427387904, kv_heads: 1", "negative or overflows"},
		{`"halves"`, `"thirds"`, `layout is "thirds", expected one of pairs, halves`},
		{"rot: 32", "rot: 33", "rot is 33"},
		{"%blk.0.cache_k, %blk.0.cache_v, _", "%blk.0.cache_k, %blk.0.cache_k, _", "writes the state %blk.0.cache_k twice"},
		{"output %out, %sum", "output %out, @norm", "output @norm is not the result of a node"},
		{"output %out, %sum", "output %blk.0.cache_k", "output %blk.0.cache_k is an old state"},
		{"\n  output %out, %sum", "", "has no outputs"},
	} {
		edited := strings.Replace(text, c.old, c.new, 1)
		if edited == text {
			t.Fatalf("%q is not in the sample", c.old)
		}
		err := graph.Verify(parse(t, edited))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q → %q: error %v, expected %s", c.old, c.new, err, c.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than one line", err)
		}
	}
}

// A state is read and written only under its newest name.
func TestVerifyStates(t *testing.T) {
	const head = `graph g (T <= 8, S <= 1, C <= 32)
  %pos : i32[T] = input {dtype: "i32", sym: "T"}
  %x : f32[T, 4] = get_rows @w, %pos
  %c : kv[C, 4] = state {width: 4}
  %d : kv[C, 4] = kv_write %c, %x, %pos, %pos
`
	const scores = " : f32[T, 1, C] = attn_scores %x, %CACHE, %pos, %pos {head_dim: 4, heads: 1, kv_heads: 1, scale: 1.0}\n"
	weight := strings.Replace(head, "\n", "\n  @w : f32[2, 4]\n", 1)
	for _, c := range []struct{ tail, want string }{
		{"  %s" + strings.ReplaceAll(scores, "CACHE", "d") + "  output %s", ""},
		{"  %s" + strings.ReplaceAll(scores, "CACHE", "c") + "  output %s", "node s (attn_scores): operand cache is %c, an old state: node d has written it"},
		{"  %e : kv[C, 4] = kv_write %c, %x, %pos, %pos\n  output %e", "node e (kv_write): operand cache is %c, an old state"},
		{"  %e : kv[C, 4] = kv_write %d, %x, %pos, %pos\n  output %e", ""},
	} {
		err := graph.Verify(parse(t, weight+c.tail))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, expected %q", c.tail, err, c.want)
		}
	}
}

// Faults that a text cannot express but a pass can make.
func TestVerifyStructure(t *testing.T) {
	for _, c := range []struct {
		name, want string
		harm       func(g *graph.Graph)
	}{
		{"use before definition", "node embd (get_rows): operand ids is %tokens, which this graph does not define before it",
			func(g *graph.Graph) { g.Nodes[0], g.Nodes[4] = g.Nodes[4], g.Nodes[0] }},
		{"value of another graph", "does not define",
			func(g *graph.Graph) { g.Nodes[5].In[0] = g.Clone().Nodes[4].Out[0] }},
		{"weight of another graph", "does not define",
			func(g *graph.Graph) { g.Nodes[5].In[1] = g.Clone().Weights[4] }},
		{"id", "value %embd: id is 99, expected 9", func(g *graph.Graph) { g.Value("embd").ID = 99 }},
		{"name twice", "value %pos: the name is used twice", func(g *graph.Graph) { g.Value("seq").Name = "pos" }},
		{"no name", "has no name", func(g *graph.Graph) { g.Value("sum").Name = "" }},
		{"wrong definition", "does not point back", func(g *graph.Graph) { g.Value("sum").Def = g.Nodes[0] }},
		{"result missing", "has 0 results, expected 1", func(g *graph.Graph) { g.Nodes[0].Out = nil }},
		{"output removed", "output %sum is not the result", func(g *graph.Graph) { g.Outputs = []*graph.Value{g.Clone().Value("sum")} }},
		{"output nil", "output _ is not the result", func(g *graph.Graph) { g.Outputs[0] = nil }},
		{"node removed", "does not define", func(g *graph.Graph) { g.Remove(g.Value("embd").Def) }},
		{"weight with a definition", "weight norm: is the result of a node", func(g *graph.Graph) { g.Weights[4].Def = g.Nodes[0] }},
	} {
		g := parse(t, text)
		c.harm(g)
		if err := graph.Verify(g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected %s", c.name, err, c.want)
		}
	}
}

func TestEqualTellsTheFirstDifference(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"graph sample", "graph other", "names differ: sample and other"},
		{"T <= 8", "T <= 9", "bounds differ"},
		{"q4_0[10, 64]", "q4_1[10, 64]", "types of weight @embd.weight differ: q4_0[10, 64] and q4_1[10, 64]"},
		{"= add %embd", "= mul %embd", "nodes 10, sum and sum: ops differ: add and mul"},
		{"= add %embd, %blk.0.attn", "= add %blk.0.attn, %embd", "operand 0 differs: %embd and %blk.0.attn"},
		{"eps: 1e-06", "eps: 1e-05", "attributes differ"},
		{"output %out, %sum", "output %out", "numbers of outputs differ: 2 and 1"},
		{"output %out, %sum", "output %sum, %out", "output 0 differs: %out and %sum"},
		{"%sum : f32[T, 64]", "%sum : f32[T, 65]", "types of result %sum differ"},
		{"@norm              : f32[64]\n", "@norm : f32[64]\n  @new : f32[1]\n", "numbers of weights differ: 5 and 6"},
	} {
		err := graph.Equal(parse(t, text), parse(t, strings.Replace(text, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q → %q: %v, expected %s", c.old, c.new, err, c.want)
		}
	}
}

func TestBuild(t *testing.T) {
	g := graph.New("g", graph.Bound{Sym: graph.T, Max: 4})
	w, err := g.Weight("w", graph.Type{DType: graph.F32, Shape: []graph.Dim{graph.N(3), graph.N(2)}})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := g.Weight("w", w.Type); again != w || err != nil {
		t.Errorf("second use gives %v, %v", again, err)
	}
	if _, err := g.Weight("w", graph.Type{DType: "f16", Shape: w.Type.Shape}); err == nil || !strings.Contains(err.Error(), "weight w: declared as f32[3, 2], used as f16[3, 2]") {
		t.Errorf("another type: %v", err)
	}
	ids, err := g.Add(ops.Input, nil, graph.Attrs{"dtype": "i32", "sym": "T"}, "ids")
	if err != nil {
		t.Fatal(err)
	}
	x, err := g.Add(ops.GetRows, []*graph.Value{w, ids[0]}, nil, "x")
	if err != nil {
		t.Fatal(err)
	}
	y, err := g.Add(ops.Matmul, []*graph.Value{x[0], w}, nil, "y") // without the residual operand
	if err != nil {
		t.Fatal(err)
	}
	if got := y[0].Type.String(); got != "f32[T, 3]" {
		t.Errorf("y has type %s", got)
	}
	if _, err := g.Add(ops.Matmul, []*graph.Value{y[0], w}, nil, "z"); err == nil || !strings.Contains(err.Error(), "node z (matmul): operand w is @w of type f32[3, 2], expected dim 1 (k) = 3") {
		t.Errorf("wrong shape: %v", err)
	}
	if _, err := g.Add(ops.Matmul, nil, nil, "z"); err == nil {
		t.Error("no operands: no error")
	}
	if _, err := g.Add(ops.Matmul, []*graph.Value{x[0], w}, nil); err == nil {
		t.Error("no names: no error")
	}
	if _, err := g.Add(ops.Matmul, []*graph.Value{x[0], w, nil, nil}, nil, "z"); err == nil {
		t.Error("too many operands: no error")
	}
	s, err := g.Insert(y[0].Def, ops.Scale, x, graph.Attrs{"factor": 2.0}, "s")
	if err != nil {
		t.Fatal(err)
	}
	g.ReplaceUses(x[0], s[0])
	if s[0].Def.In[0] != s[0] {
		t.Error("ReplaceUses spares the new value's own node")
	}
	s[0].Def.In[0] = x[0]
	g.Outputs = y
	unused, _ := g.Weight("unused", w.Type)
	g.Renumber()
	if err := graph.Verify(g); err != nil {
		t.Error(err)
	}
	if unused.ID != 0 || len(g.Weights) != 1 {
		t.Errorf("Renumber keeps an unused weight")
	}
	want := "w@0 ids@1 x@2 s@3 y@4"
	got := fmt.Sprintf("w@%d", w.ID)
	for _, n := range g.Nodes {
		got += fmt.Sprintf(" %s@%d", n.Name(), n.Out[0].ID)
	}
	if got != want {
		t.Errorf("order and ids %s, expected %s", got, want)
	}
	uses := g.Uses()
	if len(uses[w]) != 2 || len(uses[s[0]]) != 1 || uses[s[0]][0] != y[0].Def || len(uses[y[0]]) != 0 {
		t.Errorf("uses are %v", uses)
	}
	if !g.IsOutput(y[0]) || g.IsOutput(x[0]) {
		t.Error("IsOutput is wrong")
	}
	if _, err := g.Clone().Insert(y[0].Def, ops.Scale, x, graph.Attrs{"factor": 2.0}, "s2"); err == nil {
		t.Error("inserting before a node of another graph: no error")
	}
}

func TestCloneIsIndependent(t *testing.T) {
	g := parse(t, text)
	c := g.Clone()
	if err := graph.Equal(g, c); err != nil {
		t.Fatal(err)
	}
	if err := graph.Verify(c); err != nil {
		t.Fatal(err)
	}
	c.Weights[0].Type.Shape[0] = graph.N(1)
	c.Bounds[0].Max = 1
	c.Nodes[5].Attr["eps"] = 1.0
	c.Nodes[5].In[0] = nil
	c.Outputs[0] = nil
	if got := graph.Print(g); got != text {
		t.Errorf("the original has changed:\n%s", got)
	}
}

func TestBytes(t *testing.T) {
	size := func(d graph.Dim) int64 {
		if d.Sym == graph.T {
			return 3
		}
		return d.N
	}
	for _, c := range []struct {
		dtype graph.DType
		want  int64
	}{{"f32", 768}, {"i32", 768}, {"q8x2", 456}, {"q8", 264}, {"f16", 384}, {"q4_0", 108}, {"q8_0", 204}, {"kv", 0}, {"nonsense", 0}} {
		typ := graph.Type{DType: c.dtype, Shape: []graph.Dim{graph.Of(graph.T), graph.N(64)}}
		if got := typ.Bytes(size); got != c.want {
			t.Errorf("%v: %d bytes, expected %d", typ, got, c.want)
		}
	}
}

// Print inverts Parse on every text that Parse accepts, and Verify does not panic.
func FuzzParse(f *testing.F) {
	f.Add(text)
	f.Add("graph g ()")
	golden, err := filepath.Glob("pass/testdata/*.txt")
	if err != nil || len(golden) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, path := range golden {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		_, text, _ = bytes.Cut(text, []byte("-- out --\n"))
		text, _, _ = bytes.Cut(text, []byte("-- notes --\n"))
		f.Add(string(text))
	}
	f.Add("graph \"a b\" (T <= 1)\n @\"\" : f32[]\n %x : f32[T, -1] = input {a: NaN, b: -0.0, c: \"\\x00\"}\n output %x")
	f.Add("graph g ()\n %a, %b : kv[C], kv[C] = kv_write _, _, _, _\n %c : f32[R] = matmul %a, %b, _\n output %c, %a")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := graph.Parse(text, ops.Lookup)
		if err != nil {
			return
		}
		printed := graph.Print(g)
		again, err := graph.Parse(printed, ops.Lookup)
		if err != nil {
			t.Fatalf("%v in\n%s", err, printed)
		}
		if err := graph.Equal(g, again); err != nil {
			t.Fatalf("%v in\n%s", err, printed)
		}
		if err := graph.Verify(g); err == nil {
			g.Renumber()
			if err := graph.Verify(g); err != nil {
				t.Fatal(err)
			}
		}
	})
}
