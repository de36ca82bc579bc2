package lower

import (
	"strings"

	"pesti/exec/plan"
	"pesti/graph"
	"pesti/graph/pass"
	"pesti/lower/cpu"
	"pesti/ops"
)

// A lowering is what lowering passes know beyond the graph.
type lowering struct {
	program  cpu.Program
	isa      string
	integers bool // matmul kernels may take integer activations, which insert_quantise makes
}

// loweringPasses is the table of lowering passes, in the order in which they run.
func loweringPasses(l lowering) []pass.Pass {
	return []pass.Pass{
		{Name: "choose_kernels", Doc: "choose matmul kernels by weight type and precision", Run: l.chooseKernels},
		{Name: "insert_quantise", Doc: "quantise activations for kernels that take integers", Run: insertQuantise},
		pass.CSE(),
		{Name: "fuse_norm", Doc: "norm and quantisation in one step", Run: fuseNorm},
		{Name: "fuse_post_norm", Doc: "post-norm and residual addition in one step", Run: fusePostNorm},
		{Name: "fuse_residual", Doc: "residual addition in the matmul's epilogue", Run: fuseResidual},
		pass.DCE(),
	}
}

// LoweringOrder are the constraints on the table of lowering passes.
func LoweringOrder() []pass.Order {
	return []pass.Order{
		{Before: "choose_kernels", After: "insert_quantise", Why: "the kernel says which format its activations have"},
		{Before: "insert_quantise", After: "cse", Why: "consumers of one value share its quantised copy"},
		{Before: "cse", After: "fuse_norm", Why: "a norm fuses with its quantisation where that is its only use"},
		{Before: "fuse_post_norm", After: "dce", Why: "fusing leaves nodes without uses"},
		{Before: "fuse_residual", After: "dce", Why: "fusing leaves nodes without uses"},
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

// chooseKernels names a matmul kernel for each weight. A group shares its activations: where one
// of its weights has no kernel on integers, all take float32.
func (l lowering) chooseKernels(c *pass.Context, g *graph.Graph) error {
	for _, n := range g.Nodes {
		weights := matmulWeights(n)
		if weights == nil {
			continue
		}
		format := cpu.F32
		if l.integers {
			format = cpu.Q8x2
		}
		for _, w := range weights {
			if format == cpu.Q8x2 && !cpu.Integer(w.Type.DType) {
				format = cpu.F32
				c.Declined(n.Name(), "no integer kernel for %s of %s", w.Name, w.Type.DType)
			}
		}
		names := make([]string, len(weights))
		for i, w := range weights {
			layout := cpu.Layout(l.isa, w.Type.DType, format)
			names[i] = plan.MatmulName(l.program.Matmul, string(w.Type.DType), layout, format)
		}
		n.Attr["kernels"] = strings.Join(names, ",")
		c.Applied(n.Name())
	}
	return nil
}

// insertQuantise puts a quantisation in front of every matmul whose kernels take integers.
func insertQuantise(c *pass.Context, g *graph.Graph) error {
	for _, n := range append([]*graph.Node(nil), g.Nodes...) {
		kernels := n.Attr.Str("kernels")
		if kernels == "" || n.In[0].Type.DType == graph.Q8x2 {
			continue
		}
		if !strings.HasSuffix(kernels, "."+cpu.Q8x2) {
			c.Declined(n.Name(), "its kernels take float32")
			continue
		}
		out, err := g.Insert(n, ops.Quantise, n.In[:1], nil, g.Fresh(n.Name()+".x"))
		if err != nil {
			return err
		}
		n.In[0] = out[0]
		c.Applied(n.Name())
	}
	return nil
}

// fuseNorm joins a norm with the quantisation that is its only use.
func fuseNorm(c *pass.Context, g *graph.Graph) error {
	m := pass.NewMatcher(g)
	for _, n := range g.Nodes {
		if n.Op != ops.Quantise {
			continue
		}
		norm := m.By(n.In[0], ops.RMSNorm)
		if norm == nil || norm.Attr.Int("group") != 0 {
			c.Declined(n.Name(), "its operand is not a norm that only it reads")
			continue
		}
		err := m.Replace(n, []*graph.Node{norm, n}, ops.NormQuantise, norm.In, graph.Attrs{"eps": norm.Attr.Float("eps")}, n.Out[0])
		if err != nil {
			return err
		}
		c.Applied(n.Name())
	}
	m.Apply()
	return nil
}

// fusePostNorm joins a norm on a block's result with the addition of the residual stream.
func fusePostNorm(c *pass.Context, g *graph.Graph) error {
	return fuseAdd(c, g, ops.RMSNorm, "no operand is a norm of whole rows that only it reads",
		func(norm *graph.Node) bool { return norm.Attr.Int("group") == 0 },
		func(norm *graph.Node, res *graph.Value) (*graph.Op, []*graph.Value, graph.Attrs) {
			return ops.NormAdd, []*graph.Value{norm.In[0], norm.In[1], res}, graph.Attrs{"eps": norm.Attr.Float("eps")}
		})
}

// fuseResidual adds the residual stream in the epilogue of the matmul before it.
func fuseResidual(c *pass.Context, g *graph.Graph) error {
	return fuseAdd(c, g, ops.Matmul, "no operand is a matmul that only it reads",
		func(mm *graph.Node) bool { return mm.In[2] == nil && mm.Attr.Str("kernels") != "" },
		func(mm *graph.Node, res *graph.Value) (*graph.Op, []*graph.Value, graph.Attrs) {
			return ops.Matmul, []*graph.Value{mm.In[0], mm.In[1], res}, mm.Attr
		})
}

// fuseAdd looks at each addition for an operand that an inner node of one op computes.
func fuseAdd(c *pass.Context, g *graph.Graph, op *graph.Op, why string, fits func(*graph.Node) bool,
	fused func(inner *graph.Node, res *graph.Value) (*graph.Op, []*graph.Value, graph.Attrs)) error {
	m := pass.NewMatcher(g)
	for _, n := range g.Nodes {
		if n.Op != ops.Add {
			continue
		}
		by, res := m.By(n.In[1], op), n.In[0]
		if by == nil || !fits(by) {
			by, res = m.By(n.In[0], op), n.In[1]
		}
		if by == nil || !fits(by) {
			c.Declined(n.Name(), "%s", why)
			continue
		}
		to, in, attr := fused(by, res)
		if err := m.Replace(n, []*graph.Node{by, n}, to, in, attr, n.Out[0]); err != nil {
			return err
		}
		c.Applied(n.Name())
	}
	m.Apply()
	return nil
}
