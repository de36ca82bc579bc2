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

// A deviceTarget is a device's target with one of its program templates.
type deviceTarget struct {
	target  *target.Target
	program target.Program
	isa     string
	rounded *target.Rounding // the integer format of activations; nil if nothing is rounded
}

// deviceTargets holds the deviceTarget of each device. Lowering passes depend on nothing else but the graph.
type deviceTargets []deviceTarget

// at returns the target of a node's device.
func (l deviceTargets) at(n *graph.Node) *deviceTarget { return &l[n.Device] }

// prologue reports whether the products of some device have a prologue, which norms and rounds x. If have is false,
// it reports whether those of some device have none.
func (l deviceTargets) prologue(have bool) bool {
	return slices.ContainsFunc(l, func(s deviceTarget) bool { return s.program.Prologue == have })
}

// loweringPasses returns the lowering passes in the order in which they run. The passes in the
// middle depend on whether products have a prologue, which norms and quantizes x.
func loweringPasses(l deviceTargets) []pass.Pass {
	var steps []pass.Pass
	if l.prologue(false) {
		steps = []pass.Pass{
			{Name: "insert_quantize", Doc: "round activations for kernels that take integers or bf16", Run: l.insertQuantize},
			pass.CSE(),
			{Name: "fuse_norm", Doc: "norm and quantization in one step", Run: fuseNormQuantize},
			{Name: "fuse_gated_quantize", Doc: "gate, up, activation and quantization in one step", Run: l.fuseGatedQuantize},
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

// LoweringOrder returns the constraints on the order of the lowering passes.
func LoweringOrder() []pass.Order {
	return []pass.Order{
		{Before: "choose_kernels", After: "insert_quantize", Why: "the kernel says which format its activations have"},
		{Before: "insert_quantize", After: "cse", Why: "consumers of one value share its quantized copy"},
		{Before: "cse", After: "fuse_norm", Why: "a norm fuses with its quantization if that is its only use"},
		{Before: "cse", After: "fuse_gated_quantize", Why: "a gate fuses with its quantization if that is its only use"},
	}
}

// PrologueOrder returns the constraints for programs whose products have a prologue.
func PrologueOrder() []pass.Order {
	return []pass.Order{
		{Before: "choose_kernels", After: "fuse_prologue", Why: "a product without a kernel becomes basic ops, which have no prologue"},
	}
}

// matmulWeights returns the weights of a node of the matmul family. Each takes a matmul kernel.
func matmulWeights(n *graph.Node) []*graph.Value {
	var weights []*graph.Value
	for _, role := range weightRoles[n.Op] {
		weights = append(weights, n.Operand(role))
	}
	return weights
}

// weightRoles has the operands of matmul ops that are weights.
var weightRoles = map[*graph.Op][]string{ops.Matmul: {"w"}, ops.QKV: {"wq", "wk", "wv"}, ops.GatedMLP: {"gate", "up"}}

// activations returns the format in which a node's kernels read its activations, "" if there are no
// kernels. The weights of a group share their activations: if one has no integer kernel, all take
// float32.
func (l *deviceTarget) activations(c *pass.Context, n *graph.Node, weights []*graph.Value, logits bool) string {
	integers := ""
	if l.rounded != nil {
		integers = l.rounded.Format(n, logits)
	}
	for _, f := range l.target.ActivationFormats {
		if f.Rounds && integers == "" || f.Integers && f.Format != integers ||
			f.For != nil && !f.For(&l.program, n) {
			continue
		}
		whyNot := ""
		for _, w := range weights {
			whyNot = cmp.Or(whyNot, f.WhyNot(l.isa, w))
		}
		if whyNot == "" {
			return f.Format
		}
		c.Declined(n.Name(), "%s", whyNot)
	}
	return ""
}

// logitsProducts returns the last products before the logits: mostly the product with the
// vocabulary, which a factor, a bias or a selection of rows may follow. If devices share the
// product, each part is in the result. It is empty if the logits are no output.
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

// chooseKernels chooses a matmul kernel for each weight.
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

// wholeRows makes patterns match norms of whole rows only, not norms per group.
var wholeRows = map[*graph.Op][]string{ops.RMSNorm: {"group"}}

// normed maps a product's op to the op that first computes a norm of x.
var normed = map[*graph.Op]*graph.Op{ops.Matmul: ops.NormMatmul, ops.QKV: ops.NormQKV, ops.GatedMLP: ops.NormGatedMLP}

// fusePrologue fuses a norm with the product that is its only use.
func (l deviceTargets) fusePrologue(c *pass.Context, g *graph.Graph) error {
	m := pass.NewMatcher(g)
	for _, n := range g.Nodes {
		to := normed[n.Op]
		if to == nil || n.Attr.Str("kernels") == "" || !l.at(n).program.Prologue {
			continue
		}
		norm := m.By(n.Operand("x"), ops.RMSNorm)
		if norm == nil || norm.Attr.Int("group") != 0 || n.Op == ops.Matmul && n.Operand("res") != nil {
			c.Declined(n.Name(), "its operand is not a norm of whole rows that only it reads")
			continue
		}
		in := to.Operands(func(name string) *graph.Value {
			switch name {
			case "x":
				return norm.Operand("x")
			case "norm":
				return norm.Operand("w")
			}
			return n.Operand(name)
		})
		f := pass.Fusion{Nodes: []*graph.Node{norm, n}, Op: to, In: in, Results: n.Out, Checked: wholeRows, After: n}
		if err := m.Fuse(c, n.Name(), f); err != nil {
			return err
		}
	}
	m.Apply()
	return nil
}

// A quantizer holds the ops that round activations to a format: alone, after a norm, after a gated
// MLP.
type quantizer struct {
	format          string
	op, norm, gated *graph.Op
}

var quantizers = []quantizer{
	{target.Q8x2, ops.Quantize, ops.NormQuantize, ops.GatedMLPQuantize},
	{target.Q8, ops.QuantizeQ8, ops.NormQuantizeQ8, ops.GatedMLPQuantizeQ8},
	{target.BF16, ops.Round, ops.NormRound, ops.GatedMLPRound},
}

// insertQuantize inserts a quantization before every matmul whose kernels take quantized
// activations.
func (l deviceTargets) insertQuantize(c *pass.Context, g *graph.Graph) error {
	for _, n := range append([]*graph.Node(nil), g.Nodes...) {
		kernels := n.Attr.Str("kernels")
		if kernels == "" || n.Operand("x").Type.DType != graph.F32 || l.at(n).program.Prologue {
			continue
		}
		first, _, _ := strings.Cut(kernels, ",") // all have the same activations
		kernel, _ := plan.ParseMatmul(first)
		at := slices.IndexFunc(quantizers, func(r quantizer) bool { return r.format == kernel.Activations })
		if at < 0 {
			c.Declined(n.Name(), "its kernels take float32")
			continue
		}
		out, err := g.Insert(n, quantizers[at].op, []*graph.Value{n.Operand("x")}, nil, g.Fresh(n.Name()+".x"))
		if err != nil {
			return err
		}
		n.SetOperand("x", out[0])
		c.Applied(n.Name())
	}
	return nil
}

// fuseNormQuantize fuses a norm with the quantization that is its only use.
func fuseNormQuantize(c *pass.Context, g *graph.Graph) error {
	return fuseQuantize(c, g, ops.RMSNorm, "its operand is not a norm that only it reads",
		func(norm *graph.Node) bool { return norm.Attr.Int("group") == 0 },
		func(r *quantizer) *graph.Op { return r.norm })
}

// fuseGatedQuantize fuses a gated MLP with the quantization that is its only use, so that its
// result is never stored in float32.
func (l deviceTargets) fuseGatedQuantize(c *pass.Context, g *graph.Graph) error {
	return fuseQuantize(c, g, ops.GatedMLP, "its operand is not a gated product that only it reads",
		func(gated *graph.Node) bool {
			return gated.Attr.Str("kernels") != "" && !l.at(gated).program.FloatGates
		},
		func(r *quantizer) *graph.Op { return r.gated })
}

// fuseQuantize fuses each quantization with the node that computes its operand, if that node has
// the given op.
func fuseQuantize(c *pass.Context, g *graph.Graph, op *graph.Op, why string, fits func(*graph.Node) bool,
	fused func(r *quantizer) *graph.Op) error {
	m := pass.NewMatcher(g)
	for _, n := range g.Nodes {
		at := slices.IndexFunc(quantizers, func(r quantizer) bool { return r.op == n.Op })
		if at < 0 {
			continue
		}
		by := m.By(n.Operand("x"), op)
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

// fusePostNorm fuses the norm of a block's result with the addition of the residual stream.
func fusePostNorm(c *pass.Context, g *graph.Graph) error {
	return fuseAdd(c, g, "no operand is a norm of whole rows that only it reads",
		func(m *pass.Matcher, v *graph.Value) *graph.Node {
			if norm := m.By(v, ops.RMSNorm); norm != nil && norm.Attr.Int("group") == 0 {
				return norm
			}
			return nil
		},
		func(norm *graph.Node, res *graph.Value) (*graph.Op, []*graph.Value) {
			return ops.NormAdd, []*graph.Value{norm.Operand("x"), norm.Operand("w"), res}
		}, wholeRows)
}

// fuseResidual fuses the addition of the residual stream into the matmul before it, or into the sum
// of a matmul's parts on several devices.
func fuseResidual(c *pass.Context, g *graph.Graph) error {
	return fuseAdd(c, g, "no operand is a matmul that only it reads",
		func(m *pass.Matcher, v *graph.Value) *graph.Node {
			if mm := m.By(v, ops.Matmul); mm != nil && mm.Operand("res") == nil && mm.Attr.Str("kernels") != "" {
				return mm
			}
			if sum := m.By(v, ops.Sum); sum != nil && sum.Operand("res") == nil {
				return sum
			}
			return nil
		},
		func(inner *graph.Node, res *graph.Value) (*graph.Op, []*graph.Value) {
			return inner.Op, inner.Op.Operands(func(name string) *graph.Value {
				if name == "res" {
					return res
				}
				return inner.Operand(name)
			})
		}, map[*graph.Op][]string{ops.Matmul: {"kernels"}})
}

// fuseAdd fuses each addition with the node that computes one of its operands, if inner matches
// that node.
func fuseAdd(c *pass.Context, g *graph.Graph, why string, inner func(*pass.Matcher, *graph.Value) *graph.Node,
	fused func(inner *graph.Node, res *graph.Value) (*graph.Op, []*graph.Value), checked map[*graph.Op][]string) error {
	m := pass.NewMatcher(g)
	for _, n := range g.Nodes {
		if n.Op != ops.Add {
			continue
		}
		a, b := n.Operand("a"), n.Operand("b")
		by, res := inner(m, b), a
		if by == nil {
			by, res = inner(m, a), b
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
