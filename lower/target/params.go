package target

import (
	"fmt"
	"slices"

	"pesti/exec/plan"
	"pesti/graph"
)

// Width is the number of elements in a row of a value.
func Width(v *graph.Value) int64 {
	return v.Type.Shape[len(v.Type.Shape)-1].N
}

// A Value computes a kernel's parameter for a node: an int64, a float64 or a string.
type Value func(n *graph.Node, env Env) any

// computed has the parameters that follow from a node's operands and results in the same way for
// every kernel. All others are attributes of the node.
var computed = map[string]Value{
	"k":         func(n *graph.Node, _ Env) any { return Width(n.Operand("x")) },
	"n":         func(n *graph.Node, _ Env) any { return Width(n.Out[0]) },
	"rows":      func(n *graph.Node, _ Env) any { return n.Operand("table").Type.Shape[0].N },
	"group":     func(n *graph.Node, _ Env) any { return Width(n.Operand("w")) },
	"width":     func(n *graph.Node, _ Env) any { return Width(n.Operand("x")) },
	"eps":       func(n *graph.Node, _ Env) any { return n.Float("eps") }, // 0 for an op without a norm
	"positions": func(n *graph.Node, env Env) any { positions, _ := env.storage(n); return positions },
	"ring":      func(n *graph.Node, env Env) any { _, ring := env.storage(n); return flag(ring) },
}

// Vocab is the parameter "vocab" of look-ups in a whole table: its number of rows.
var Vocab = map[string]Value{"vocab": computed["rows"]}

// storage returns the storage of the first state among a node's operands.
func (env Env) storage(n *graph.Node) (positions int64, ring bool) {
	at := slices.IndexFunc(n.In, func(v *graph.Value) bool { return v != nil && v.Type.DType == graph.KV })
	return env.Positions(n.In[at])
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Parameters returns the parameters of the row's kernel for a node, in the order of the signature.
// Each comes from the row's Params, else from the table of computed parameters, else from the
// attribute of its name. A parameter that has its default value is left out.
func (l *Lowering) Parameters(n *graph.Node, env Env) ([]plan.Param, error) {
	sig, ok := plan.LookupKernel(l.Kernel)
	if !ok {
		return nil, fmt.Errorf("kernel %s is not in the signature table", l.Kernel)
	}
	var list []plan.Param
	for i := range sig.Params {
		spec := &sig.Params[i]
		if spec.Repeat { // n0, n1, n2: the widths of the results
			for j, v := range n.Out {
				list = append(list, plan.Param{Name: fmt.Sprintf("%s%d", spec.Name, j), Value: Width(v)})
			}
			continue
		}
		v := l.parameter(spec.Name, n, env)
		switch {
		case v == nil && spec.Default == nil:
			return nil, fmt.Errorf("kernel %s takes a parameter %s, which op %s has no attribute for", l.Kernel, spec.Name, n.Op.Name)
		case v == nil, spec.Default != nil && v == spec.Default:
			continue
		}
		list = append(list, plan.Param{Name: spec.Name, Value: v})
	}
	return list, nil
}

func (l *Lowering) parameter(name string, n *graph.Node, env Env) any {
	if value, ok := l.Params[name]; ok {
		return value(n, env)
	}
	if value, ok := computed[name]; ok {
		return value(n, env)
	}
	return n.Attribute(name)
}

// shape is the attribute that also follows from the types of a node's values: the width of a
// concatenation or of a state.
const shape = "width"

// ignores returns a reason that names an attribute which the row's kernel does not take; "" if
// there is none. An attribute with its default value does not count.
func (l *Lowering) ignores(n *graph.Node) string {
	sig, _ := plan.LookupKernel(l.Kernel)
	for name := range n.Attr {
		switch {
		case n.IsDefault(name), name == shape, name == "kernels" && l.Matmuls != nil:
		case sig == nil || !slices.ContainsFunc(sig.Params, func(p plan.ParamSpec) bool { return p.Name == name }):
			return fmt.Sprintf("kernel %s takes no %s", l.Kernel, name)
		}
	}
	return ""
}
