package conformance

import (
	"slices"
	"strings"
	"testing"

	"pesti/graph"
	"pesti/ops"
)

// usesGELU has the architectures whose activation llama.cpp takes from a table in float16.
var usesGELU = map[string]bool{"gemma3": true}

// ahead lists architectures that are not supported yet. Their models are compared between transformers and llama.cpp only,
// so that a reference is there before the architecture. The change that adds an architecture removes it here and adds
// faults below.
var ahead = []string{"granite", "olmo2", "phi3", "smollm3"}

// A seededFault is a change of the graph that an author of the architecture could make by mistake.
type seededFault struct {
	name string
	edit func(g *graph.Graph) (changed int)
}

// seededFaults has the faults of each model of transformers/models.
var seededFaults = map[string][]seededFault{
	"llama": append(commonFaults(),
		seededFault{"RoPE on halves", setAttr("layout", ops.Halves, ops.Rope)},
		seededFault{"keys without RoPE", bypass("k_rope")},
		seededFault{"GELU for SiLU", swapOp(ops.SiLU, ops.GELUTanh)}),
	"qwen2": append(commonFaults(),
		seededFault{"RoPE on pairs", setAttr("layout", "pairs", ops.Rope)},
		seededFault{"no bias of q", bypass("q")},
		seededFault{"no bias of k", bypass("k")},
		seededFault{"no bias of v", bypass("v")}),
	"qwen2-yarn": append(commonFaults(),
		seededFault{"linear scaling", dropAttrs(ops.Rope, "ramp_low", "ramp_high")},
		seededFault{"a ramp that ends one pair later", addToAttr("ramp_high", 1, ops.Rope)},
		seededFault{"no magnitude", dropAttrs(ops.Rope, "magnitude")}),
	"mistral": append(commonFaults(),
		seededFault{"RoPE on halves", setAttr("layout", ops.Halves, ops.Rope)},
		seededFault{"scores scaled by width / heads", setAttr("scale", 0.31622776601683794, ops.AttnScores)},
		seededFault{"RoPE on a part of the head", setAttr("rot", int64(10), ops.Rope)}),
	"qwen3": append(commonFaults(),
		seededFault{"RoPE on pairs", setAttr("layout", "pairs", ops.Rope)},
		seededFault{"no norm of q", bypass("q_norm")},
		seededFault{"no norm of k", bypass("k_norm")},
		seededFault{"scores scaled by width / heads", setAttr("scale", 0.31622776601683794, ops.AttnScores)}),
	"gemma3": append(commonFaults(),
		seededFault{"RoPE on pairs", setAttr("layout", "pairs", ops.Rope)},
		seededFault{"no norm of q", bypass("q_norm")},
		seededFault{"no norm after attention", bypass("attn_post_norm")},
		seededFault{"no norm after the feed-forward", bypass("ffn_post_norm")},
		seededFault{"embeddings not scaled", bypass("embd_scaled")},
		seededFault{"erf GELU", swapOp(ops.GELUTanh, ops.GELUErf)},
		seededFault{"SiLU for GELU", swapOp(ops.GELUTanh, ops.SiLU)},
		seededFault{"window one longer", addToWindow(1)},
		seededFault{"window one shorter", addToWindow(-1)},
		seededFault{"global layers one early", shiftGlobal},
		seededFault{"the global base in all layers", setAttr("base", 1e6, ops.Rope)},
		seededFault{"the local base in all layers", setAttr("base", 1e4, ops.Rope)}),
	"gemma3-linear": append(commonFaults(),
		seededFault{"no scaling", setAttr("freq_scale", 1.0, ops.Rope)},
		seededFault{"scaling in all layers", setAttr("freq_scale", 0.125, ops.Rope)},
		seededFault{"window one longer", addToWindow(1)},
		seededFault{"window one shorter", addToWindow(-1)},
		seededFault{"global layers one early", shiftGlobal}),
}

// commonFaults are faults that every architecture can have.
func commonFaults() []seededFault {
	return []seededFault{
		{"scores scaled 1 % more", scaleAttr("scale", 1.01, ops.AttnScores)},
		{"RoPE base 1 % larger", scaleAttr("base", 1.01, ops.Rope)},
		{"epsilon doubled", scaleAttr("eps", 2, ops.RMSNorm)},
		{"no norm before attention", bypass("attn_norm")},
		{"no norm before the feed-forward", bypass("ffn_norm")},
		{"no norm before the head", bypass("output_norm")},
		{"no residual around attention in layer 1", bypassInput("blk.1.attn_res", 1)},
		{"no feed-forward in layer 1", bypass("blk.1.out")},
	}
}

// seed returns the edit, which fails the test if it changes nothing.
func (f seededFault) seed(t testing.TB) func(g *graph.Graph) {
	return func(g *graph.Graph) {
		t.Helper()
		if f.edit(g) == 0 {
			t.Fatalf("%s: changes nothing in the graph", f.name)
		}
		g.Renumber()
	}
}

// eachNode applies an edit to the nodes of the ops. It counts the nodes that edit changes.
func eachNode(edit func(n *graph.Node) bool, of ...*graph.Op) func(*graph.Graph) int {
	return func(g *graph.Graph) (changed int) {
		for _, n := range g.Nodes {
			if slices.Contains(of, n.Op) && edit(n) {
				changed++
			}
		}
		return changed
	}
}

// setAttr gives an attribute one value in all nodes of the ops.
func setAttr(name string, value any, of ...*graph.Op) func(*graph.Graph) int {
	return eachNode(func(n *graph.Node) bool {
		before := n.Attr[name]
		n.Attr[name] = value
		return before != value
	}, of...)
}

// scaleAttr multiplies an attribute in all nodes of the ops.
func scaleAttr(name string, by float64, of ...*graph.Op) func(*graph.Graph) int {
	return eachNode(func(n *graph.Node) bool {
		n.Attr[name] = n.Float(name) * by
		return true
	}, of...)
}

// addToAttr adds to an attribute in all nodes of the ops.
func addToAttr(name string, x float64, of ...*graph.Op) func(*graph.Graph) int {
	return eachNode(func(n *graph.Node) bool {
		n.Attr[name] = n.Float(name) + x
		return true
	}, of...)
}

// dropAttrs removes attributes in all nodes of the op.
func dropAttrs(of *graph.Op, names ...string) func(*graph.Graph) int {
	return eachNode(func(n *graph.Node) bool {
		before := len(n.Attr)
		for _, name := range names {
			delete(n.Attr, name)
		}
		return len(n.Attr) < before
	}, of)
}

// windowed are the ops with an attribute window.
var windowed = []*graph.Op{ops.State, ops.AttnScores, ops.AttnValues}

// addToWindow changes the length of every window.
func addToWindow(by int64) func(*graph.Graph) int {
	return eachNode(func(n *graph.Node) bool {
		window := n.Attr.Int("window")
		if window == 0 {
			return false
		}
		n.Attr["window"] = window + by
		return true
	}, windowed...)
}

// shiftGlobal gives each layer the window of the layer after it, and the last layer that of the first.
func shiftGlobal(g *graph.Graph) int {
	windows := make(map[string]int64)
	for _, n := range g.Nodes {
		if n.Op == ops.AttnScores {
			windows[blockOf(n)] = n.Attr.Int("window")
		}
	}
	return eachNode(func(n *graph.Node) bool {
		var l int
		for "blk."+itoa(l) != blockOf(n) {
			l++
		}
		n.Attr["window"] = windows["blk."+itoa((l+1)%len(windows))]
		return true
	}, windowed...)(g)
}

// blockOf is the prefix blk.N of a node's name.
func blockOf(n *graph.Node) string {
	return strings.Join(strings.SplitN(n.Name(), ".", 3)[:2], ".")
}

// swapOp replaces one op by another with the same operands.
func swapOp(from, to *graph.Op) func(*graph.Graph) int {
	return eachNode(func(n *graph.Node) bool {
		n.Op = to
		return true
	}, from)
}

// bypass replaces the value of that name, in every block or with its full name, by its node's first operand.
func bypass(name string) func(*graph.Graph) int { return bypassInput(name, 0) }

// bypassInput is bypass with another operand.
func bypassInput(name string, operand int) func(*graph.Graph) int {
	return func(g *graph.Graph) (changed int) {
		for _, n := range slices.Clone(g.Nodes) {
			if full := n.Name(); full == name || strings.HasPrefix(full, "blk.") && full == blockOf(n)+"."+name {
				g.ReplaceUses(n.Out[0], n.In[operand])
				g.Remove(n)
				changed++
			}
		}
		return changed
	}
}
