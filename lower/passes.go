package lower

import (
	"cmp"
	"slices"
	"strings"

	"pesti/exec/plan"
	"pesti/graph"
	"pesti/graph/pass"
	"pesti/lower/target"
	"pesti/ops"
)

// A deviceTarget is what a device offers to one program.
type deviceTarget struct {
	target  *target.Target
	program target.Program
	isa     string
	rounded *target.Rounding // the integer format of activations; nil where nothing is rounded
}

// deviceTargets are what lowering passes know beyond the graph: what each device offers to a program.
type deviceTargets []deviceTarget

// at returns the target of a node's device.
func (l deviceTargets) at(n *graph.Node) *deviceTarget { return &l[n.Device] }

// prologue reports whether there is a device whose products do, or do not, norm and round their operand
// themselves.
func (l deviceTargets) prologue(have bool) bool {
	return slices.ContainsFunc(l, func(s deviceTarget) bool { return s.program.Prologue == have })
}

// loweringPasses is the table of lowering passes, in the order in which they run. Those in the middle depend on
// whether products norm and quantize their operand themselves.
func loweringPasses(l deviceTargets) []pass.Pass {
	var steps []pass.Pass
	if l.prologue(false) {
		steps = []pass.Pass{
			{Name: "insert_quantise", Doc: "round activations for kernels that take integers or bf16", Run: l.insertQuantize},
			pass.CSE(),
			{Name: "fuse_norm", Doc: "norm and quantisation in one step", Run: fuseNormQuantize},
			{Name: "fuse_gate", Doc: "gate, up, activation and quantisation in one step", Run: l.fuseGatedQuantize},
		}
	}
	if l.prologue(true) {
		steps = append(steps, pass.Pass{Name: "fuse_prologue", Doc: "norm in the product's prologue", Run: l.fusePrologue})
	}
	return slices.Concat(
		[]pass.Pass{{Name: "choose_kernels", Doc: "choose matmul kernels by weight type and precision", Run: l.chooseKernels}},
		steps,
		[]pass.Pass{
			{Name: "fuse_post_norm", Doc: "post-norm and residual addition in one step", Run: fusePostNorm},
			{Name: "fuse_residual", Doc: "residual addition in the matmul's epilogue", Run: fuseResidual},
			pass.DCE(),
		})
}

// LoweringOrder are the constraints on the table of lowering passes.
func LoweringOrder() []pass.Order {
	return []pass.Order{
		{Before: "choose_kernels", After: "insert_quantise", Why: "the kernel says which format its activations have"},
		{Before: "insert_quantise", After: "cse", Why: "consumers of one value share its quantised copy"},
		{Before: "cse", After: "fuse_norm", Why: "a norm fuses with its quantisation where that is its only use"},
		{Before: "cse", After: "fuse_gate", Why: "a gate fuses with its quantisation where that is its only use"},
	}
}

// PrologueOrder are the constraints on the table for programs whose products have a prologue.
func PrologueOrder() []pass.Order {
	return []pass.Order{
		{Before: "choose_kernels", After: "fuse_prologue", Why: "a product without a kernel becomes basic ops, which have no prologue"},
	}
}

// matmulWeights returns the weights of a node of the matmul family, which take kernels.
func matmulWeights(n *graph.Node) []*graph.Value {
	switch n.Op {
	case ops.Matmul:
		return n.In[1:2]
	case ops.QKV:
		return n.In[1:4]
	case ops.GatedMLP:
		return n.In[1:3]
	}
	return nil
}

// activations returns the format in which a node's kernels read its activations, "" where there are no kernels. A
// group shares its activations: where one weight has no integer kernel, all weights take float32.
func (l *deviceTarget) activations(c *pass.Context, n *graph.Node, weights []*graph.Value, logits bool) string {
	integers := ""
	if l.rounded != nil {
		integers = l.rounded.Format(n, logits)
	}
	for _, way := range l.target.ActivationFormats {
		if way.Rounds && integers == "" || way.Integers && way.Format != integers ||
			way.For != nil && !way.For(&l.program, n) {
			continue
		}
		lacks := ""
		for _, w := range weights {
			lacks = cmp.Or(lacks, way.WhyNot(l.isa, w))
		}
		if lacks == "" {
			return way.Format
		}
		c.Declined(n.Name(), "%s", lacks)
	}
	return ""
}

// logitsProducts returns the products of which the logits are computed with no further product in between:
// mostly that with the vocabulary, whatever follows it, such as a factor, a bias or a selection of rows. Of a
// product that devices share it has each part. It is empty where the logits are no output.
func logitsProducts(g *graph.Graph) map[*graph.Node]bool {
	products, seen := map[*graph.Node]bool{}, map[*graph.Node]bool{}
	var back func(v *graph.Value)
	back = func(v *graph.Value) {
		if v == nil || v.Def == nil || seen[v.Def] {
			return
		}
		seen[v.Def] = true
		if matmulWeights(v.Def) != nil {
			products[v.Def] = true
			return
		}
		for _, x := range v.Def.In {
			back(x)
		}
	}
	for _, v := range g.Outputs {
		if v.Name == "logits" {
			back(v)
		}
	}
	return products
}

// chooseKernels names a matmul kernel for each weight.
func (l deviceTargets) chooseKernels(c *pass.Context, g *graph.Graph) error {
	logits := logitsProducts(g)
	for _, n := range g.Nodes {
		weights := matmulWeights(n)
		if weights == nil {
			continue
		}
		dev := l.at(n)
		format := dev.activations(c, n, weights, logits[n])
		if format == "" {
			continue
		}
		names := make([]string, len(weights))
		for i, w := range weights {
			layout := dev.target.Layout(dev.isa, w.Type.DType, format)
			names[i] = plan.MatmulName(dev.program.Matmul, string(w.Type.DType), layout, format)
		}
		n.Attr["kernels"] = strings.Join(names, ",")
		c.Applied(n.Name())
	}
	return nil
}

// wholeRows is what the patterns of norms check: that the norm is not one per group.
var wholeRows = map[*graph.Op][]string{ops.RMSNorm: {"group"}}

// normed maps a product to the op that computes a norm of x first.
var normed = map[*graph.Op]*graph.Op{ops.Matmul: ops.NormMatmul, ops.QKV: ops.NormQKV, ops.GatedMLP: ops.NormGatedMLP}

// fusePrologue joins a norm with the product that is its only use.
func (l deviceTargets) fusePrologue(c *pass.Context, g *graph.Graph) error {
	m := pass.NewMatcher(g)
	for _, n := range g.Nodes {
		to := normed[n.Op]
		if to == nil || n.Attr.Str("kernels") == "" || !l.at(n).program.Prologue {
			continue
		}
		norm := m.By(n.In[0], ops.RMSNorm)
		if norm == nil || norm.Attr.Int("group") != 0 || n.Op == ops.Matmul && n.In[2] != nil {
			c.Declined(n.Name(), "its operand is not a norm of whole rows that only it reads")
			continue
		}
		in := slices.Concat(norm.In, n.In[1:])
		if n.Op == ops.Matmul {
			in = in[:3] // without a residual
		}
		f := pass.Fusion{Nodes: []*graph.Node{norm, n}, Op: to, In: in, Results: n.Out, Checked: wholeRows, After: n}
		if err := m.Fuse(c, n.Name(), f); err != nil {
			return err
		}
	}
	m.Apply()
	return nil
}

// A quantizer is the ops that round activations to a format: alone, after a norm, after a gated MLP.
type quantizer struct {
	format          string
	op, norm, gated *graph.Op
}

var quantizers = []quantizer{
	{target.Q8x2, ops.Quantize, ops.NormQuantize, ops.GatedMLPQuantize},
	{target.Q8, ops.QuantizeQ8, ops.NormQuantizeQ8, ops.GatedMLPQuantizeQ8},
	{target.BF16, ops.Round, ops.NormRound, ops.GatedMLPRound},
}

// insertQuantize puts a quantization in front of every matmul whose kernels take quantized activations.
func (l deviceTargets) insertQuantize(c *pass.Context, g *graph.Graph) error {
	for _, n := range append([]*graph.Node(nil), g.Nodes...) {
		kernels := n.Attr.Str("kernels")
		if kernels == "" || n.In[0].Type.DType != graph.F32 || l.at(n).program.Prologue {
			continue
		}
		first, _, _ := strings.Cut(kernels, ",") // all have the same activations
		kernel, _ := plan.ParseMatmul(first)
		at := slices.IndexFunc(quantizers, func(r quantizer) bool { return r.format == kernel.Activations })
		if at < 0 {
			c.Declined(n.Name(), "its kernels take float32")
			continue
		}
		out, err := g.Insert(n, quantizers[at].op, n.In[:1], nil, g.Fresh(n.Name()+".x"))
		if err != nil {
			return err
		}
		n.In[0] = out[0]
		c.Applied(n.Name())
	}
	return nil
}

// fuseNormQuantize joins a norm with the quantization that is its only use.
func fuseNormQuantize(c *pass.Context, g *graph.Graph) error {
	return fuseQuantize(c, g, ops.RMSNorm, "its operand is not a norm that only it reads",
		func(norm *graph.Node) bool { return norm.Attr.Int("group") == 0 },
		func(r *quantizer) *graph.Op { return r.norm })
}

// fuseGatedQuantize joins a gated MLP with the quantization that is its only use, so that its result is never
// stored in float32.
func (l deviceTargets) fuseGatedQuantize(c *pass.Context, g *graph.Graph) error {
	return fuseQuantize(c, g, ops.GatedMLP, "its operand is not a gated product that only it reads",
		func(gated *graph.Node) bool {
			return gated.Attr.Str("kernels") != "" && !l.at(gated).program.FloatGates
		},
		func(r *quantizer) *graph.Op { return r.gated })
}

// fuseQuantize joins each quantization with the node that computes its operand, where that node is of the given op.
func fuseQuantize(c *pass.Context, g *graph.Graph, op *graph.Op, why string, fits func(*graph.Node) bool,
	fused func(r *quantizer) *graph.Op) error {
	m := pass.NewMatcher(g)
	for _, n := range g.Nodes {
		at := slices.IndexFunc(quantizers, func(r quantizer) bool { return r.op == n.Op })
		if at < 0 {
			continue
		}
		by := m.By(n.In[0], op)
		if by == nil || !fits(by) {
			c.Declined(n.Name(), "%s", why)
			continue
		}
		f := pass.Fusion{Nodes: []*graph.Node{by, n}, Op: fused(&quantizers[at]), In: by.In, Results: n.Out, Checked: wholeRows, After: n}
		if err := m.Fuse(c, n.Name(), f); err != nil {
			return err
		}
	}
	m.Apply()
	return nil
}

// fusePostNorm joins a norm on a block's result with the addition of the residual stream.
func fusePostNorm(c *pass.Context, g *graph.Graph) error {
	return fuseAdd(c, g, "no operand is a norm of whole rows that only it reads",
		func(m *pass.Matcher, v *graph.Value) *graph.Node {
			if norm := m.By(v, ops.RMSNorm); norm != nil && norm.Attr.Int("group") == 0 {
				return norm
			}
			return nil
		},
		func(norm *graph.Node, res *graph.Value) (*graph.Op, []*graph.Value) {
			return ops.NormAdd, []*graph.Value{norm.In[0], norm.In[1], res}
		}, wholeRows)
}

// fuseResidual adds the residual stream in the epilogue of the matmul before it, or of the sum of what several devices
// have of one.
func fuseResidual(c *pass.Context, g *graph.Graph) error {
	return fuseAdd(c, g, "no operand is a matmul that only it reads",
		func(m *pass.Matcher, v *graph.Value) *graph.Node {
			if mm := m.By(v, ops.Matmul); mm != nil && mm.In[2] == nil && mm.Attr.Str("kernels") != "" {
				return mm
			}
			if sum := m.By(v, ops.Sum); sum != nil && sum.In[3] == nil {
				return sum
			}
			return nil
		},
		func(inner *graph.Node, res *graph.Value) (*graph.Op, []*graph.Value) {
			in := slices.Clone(inner.In)
			in[len(in)-1] = res
			return inner.Op, in
		}, map[*graph.Op][]string{ops.Matmul: {"kernels"}})
}

// fuseAdd looks at each addition for an operand that an inner node computes.
func fuseAdd(c *pass.Context, g *graph.Graph, why string, inner func(*pass.Matcher, *graph.Value) *graph.Node,
	fused func(inner *graph.Node, res *graph.Value) (*graph.Op, []*graph.Value), checked map[*graph.Op][]string) error {
	m := pass.NewMatcher(g)
	for _, n := range g.Nodes {
		if n.Op != ops.Add {
			continue
		}
		by, res := inner(m, n.In[1]), n.In[0]
		if by == nil {
			by, res = inner(m, n.In[0]), n.In[1]
		}
		if by == nil {
			c.Declined(n.Name(), "%s", why)
			continue
		}
		to, in := fused(by, res)
		f := pass.Fusion{Nodes: []*graph.Node{by, n}, Op: to, In: in, Results: n.Out, Checked: checked, After: n}
		if err := m.Fuse(c, n.Name(), f); err != nil {
			return err
		}
	}
	m.Apply()
	return nil
}
