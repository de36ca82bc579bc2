package graph

import (
	"slices"
	"strings"
)

// String returns the type in the graph's text form: f32[T, 896].
func (t Type) String() string {
	var b strings.Builder
	b.WriteString(string(t.DType) + "[")
	for i, d := range t.Shape {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(d.String())
	}
	b.WriteString("]")
	return b.String()
}

// Equal reports whether t and u have the same element type and shape.
func (t Type) Equal(u Type) bool { return t.DType == u.DType && slices.Equal(t.Shape, u.Shape) }

// String returns the value as the text form refers to it: %name for a result, @name for a weight.
func (v *Value) String() string {
	switch {
	case v == nil:
		return "_"
	case v.IsWeight():
		return "@" + quoted(v.Name)
	}
	return "%" + quoted(v.Name)
}

// Name returns the name of the node's first result. Messages refer to the node by it.
func (n *Node) Name() string {
	if len(n.Out) == 0 {
		return "?"
	}
	return n.Out[0].Name
}

// Operand returns the operand with a name in the op's specification, or nil if it is absent. It
// panics if the op has no such operand, which is a bug of the caller.
func (n *Node) Operand(name string) *Value {
	return n.In[n.operandIndex(name)]
}

// SetOperand replaces the operand of that name; v is nil to remove it. It panics like Operand.
func (n *Node) SetOperand(name string, v *Value) { n.In[n.operandIndex(name)] = v }

func (n *Node) operandIndex(name string) int {
	for i := range n.Op.In {
		if n.Op.In[i].Name == name {
			return i
		}
	}
	panic("op " + n.Op.Name + " has no operand " + name)
}

// Operands returns a list of operands for the op, from the value of each one by name; of returns nil for an absent one.
func (op *Op) Operands(of func(name string) *Value) []*Value {
	in := make([]*Value, len(op.In))
	for i := range in {
		in[i] = of(op.In[i].Name)
	}
	return in
}

// Max returns the bound of a symbol, or 0 if the graph has none.
func (g *Graph) Max(s Sym) int64 {
	for _, b := range g.Bounds {
		if b.Sym == s {
			return b.Max
		}
	}
	return 0
}
