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

// A site is what a device offers to one program.
type site struct {
	target  *target.Target
	program target.Program
	isa     string
	rounded *target.Rounding // to which of the target's formats of integers insert_quantise rounds what matmul kernels take; nil where nothing is rounded
}

// A lowering is what lowering passes know beyond the graph: the sites of a program, by device.
type lowering []site

// at is the site of a node.
func (l lowering) at(n *graph.Node) *site { return &l[n.Device] }

// prologue reports whether a site whose products norm and round by themselves, or one whose products do
// not, is among those of the program.
func (l lowering) prologue(have bool) bool {
	return slices.ContainsFunc(l, func(s site) bool { return s.program.Prologue == have })
}

// loweringPasses is the table of lowering passes, in the order in which they run. Those in the middle
// depend on whether products norm and round what they read by themselves.
func loweringPasses(l lowering) []pass.Pass {
	var steps []pass.Pass
	if l.prologue(false) {
		steps = []pass.Pass{
			{Name: "insert_quantise", Doc: "round activations for kernels that take integers or bf16", Run: l.insertQuantise},
			pass.CSE(),
			{Name: "fuse_norm", Doc: "norm and quantisation in one step", Run: fuseNorm},
			{Name: "fuse_gate", Doc: "gate, up, activation and quantisation in one step", Run: l.fuseGate},
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
	case ops.SwiGLU:
		return n.In[1:3]
	}
	return nil
}

// activations returns the format in which a node's kernels read its activations, "" where there are
// no kernels. A group shares them: where one of its weights has no kernel on integers, all take float32.
func (l *site) activations(c *pass.Context, n *graph.Node, weights []*graph.Value, logits bool) string {
	integers := ""
	if l.rounded != nil {
		integers = l.rounded.Format(n, logits)
	}
	for _, way := range l.target.Ways {
		if way.Rounds && integers == "" || way.Integers && way.Format != integers ||
			way.For != nil && !way.For(&l.program, n) {
			continue
		}
		lacks := ""
		for _, w := range weights {
			lacks = cmp.Or(lacks, way.Lacks(l.isa, w))
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
func (l lowering) chooseKernels(c *pass.Context, g *graph.Graph) error {
	logits := logitsProducts(g)
	for _, n := range g.Nodes {
		weights := matmulWeights(n)
		if weights == nil {
			continue
		}
		site := l.at(n)
		format := site.activations(c, n, weights, logits[n])
		if format == "" {
			continue
		}
		names := make([]string, len(weights))
		for i, w := range weights {
			layout := site.target.Layout(site.isa, w.Type.DType, format)
			names[i] = plan.MatmulName(site.program.Matmul, string(w.Type.DType), layout, format)
		}
		n.Attr["kernels"] = strings.Join(names, ",")
		c.Applied(n.Name())
	}
	return nil
}

// wholeRows is what the patterns of norms check: that the norm is not one per group.
var wholeRows = map[*graph.Op][]string{ops.RMSNorm: {"group"}}

// normed are the products with a norm in front of x.
var normed = map[*graph.Op]*graph.Op{ops.Matmul: ops.NormMatmul, ops.QKV: ops.NormQKV, ops.SwiGLU: ops.NormSwiGLU}

// fusePrologue joins a norm with the product that is its only use.
func (l lowering) fusePrologue(c *pass.Context, g *graph.Graph) error {
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

// A rounding is the ops that round activations to a format: alone, after a norm, after a gate.
type rounding struct {
	format            string
	alone, norm, gate *graph.Op
}

var roundings = []rounding{
	{target.Q8x2, ops.Quantise, ops.NormQuantise, ops.SwiGLUQuantise},
	{target.Q8, ops.QuantiseQ8, ops.NormQuantiseQ8, ops.SwiGLUQuantiseQ8},
	{target.BF16, ops.Round, ops.NormRound, ops.SwiGLURound},
}

// insertQuantise puts a rounding in front of every matmul whose kernels take rounded activations.
func (l lowering) insertQuantise(c *pass.Context, g *graph.Graph) error {
	for _, n := range append([]*graph.Node(nil), g.Nodes...) {
		kernels := n.Attr.Str("kernels")
		if kernels == "" || n.In[0].Type.DType != graph.F32 || l.at(n).program.Prologue {
			continue
		}
		first, _, _ := strings.Cut(kernels, ",") // all have the same activations
		kernel, _ := plan.ParseMatmul(first)
		at := slices.IndexFunc(roundings, func(r rounding) bool { return r.format == kernel.Activations })
		if at < 0 {
			c.Declined(n.Name(), "its kernels take float32")
			continue
		}
		out, err := g.Insert(n, roundings[at].alone, n.In[:1], nil, g.Fresh(n.Name()+".x"))
		if err != nil {
			return err
		}
		n.In[0] = out[0]
		c.Applied(n.Name())
	}
	return nil
}

// fuseNorm joins a norm with the rounding that is its only use.
func fuseNorm(c *pass.Context, g *graph.Graph) error {
	return fuseRounding(c, g, ops.RMSNorm, "its operand is not a norm that only it reads",
		func(norm *graph.Node) bool { return norm.Attr.Int("group") == 0 },
		func(r *rounding) *graph.Op { return r.norm })
}

// fuseGate joins a gated product with the rounding that is its only use, so that its result is
// never stored in float32.
func (l lowering) fuseGate(c *pass.Context, g *graph.Graph) error {
	return fuseRounding(c, g, ops.SwiGLU, "its operand is not a gated product that only it reads",
		func(gated *graph.Node) bool {
			return gated.Attr.Str("kernels") != "" && !l.at(gated).program.FloatGates
		},
		func(r *rounding) *graph.Op { return r.gate })
}

// fuseRounding looks at each rounding for an operand that a node of one op computes.
func fuseRounding(c *pass.Context, g *graph.Graph, op *graph.Op, why string, fits func(*graph.Node) bool,
	fused func(r *rounding) *graph.Op) error {
	m := pass.NewMatcher(g)
	for _, n := range g.Nodes {
		at := slices.IndexFunc(roundings, func(r rounding) bool { return r.alone == n.Op })
		if at < 0 {
			continue
		}
		by := m.By(n.In[0], op)
		if by == nil || !fits(by) {
			c.Declined(n.Name(), "%s", why)
			continue
		}
		f := pass.Fusion{Nodes: []*graph.Node{by, n}, Op: fused(&roundings[at]), In: by.In, Results: n.Out, Checked: wholeRows, After: n}
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
