package graph

import (
	"fmt"
	"reflect"
	"slices"
)

// Verify checks the invariants of graphs. Its error names the node and the value that violate one.
// Operands are defined before their use and belong to g; arity and attributes fit the op; types
// equal the types that the op infers; weights have a type that a model file can store; names are
// unique; ids are dense; a state is written at most once under each name and not read under that
// name afterwards; operands are on the node's device unless its op crosses devices; outputs exist.
func Verify(g *Graph) error {
	v := verifier{defined: make(map[*Value]bool), written: make(map[*Value]*Node), names: make(map[string]bool)}
	for i, b := range g.Bounds {
		if b.Max < 0 || slices.ContainsFunc(g.Bounds[:i], func(c Bound) bool { return c.Sym == b.Sym }) {
			return fmt.Errorf("graph %s: bound %s <= %d is negative, or the symbol has two bounds", g.Name, b.Sym, b.Max)
		}
	}
	for _, w := range g.Weights {
		if err := checkWeight(w); err != nil {
			return err
		}
		if err := v.define(w, w.String()); err != nil {
			return err
		}
	}
	for _, n := range g.Nodes {
		if err := v.node(n); err != nil {
			return err
		}
	}
	if len(g.Outputs) == 0 {
		return fmt.Errorf("graph %s: has no outputs, expected at least one", g.Name)
	}
	for _, o := range g.Outputs {
		if o == nil || !v.defined[o] || o.IsWeight() {
			return fmt.Errorf("graph %s: output %v is not the result of a node of this graph", g.Name, o)
		}
		if w := v.written[o]; w != nil {
			return fmt.Errorf("graph %s: output %v is an old state: node %s writes it", g.Name, o, w.Name())
		}
	}
	var err error
	g.number(func(v *Value, id int) {
		if v.ID != id && err == nil {
			err = fmt.Errorf("value %v: id is %d, expected %d: call Renumber", v, v.ID, id)
		}
	})
	return err
}

func checkWeight(w *Value) error {
	if !w.IsWeight() {
		return fmt.Errorf("weight %s: is the result of a node, expected no definition", w.Name)
	}
	if block, _ := BlockOf(w.Type.DType); block == 0 || w.Type.DType == Q8x2 || w.Type.DType == Q8 {
		return fmt.Errorf("weight %s: has element type %s, expected one that a model file stores", w.Name, w.Type.DType)
	}
	for _, d := range w.Type.Shape {
		if d.Sym != Const || d.N < 0 {
			return fmt.Errorf("weight %s: has type %v, expected constant extents of 0 or more", w.Name, w.Type)
		}
	}
	if w.Part != nil {
		if err := w.Part.check(w.Type); err != nil {
			return fmt.Errorf("weight %s: %w", w.Name, err)
		}
	}
	return nil
}

type verifier struct {
	defined map[*Value]bool
	written map[*Value]*Node // the node that has written each state
	names   map[string]bool  // printed names, so that weights and results do not collide
}

// define registers a value under its printed name.
func (v *verifier) define(val *Value, name string) error {
	if val.Name == "" {
		return fmt.Errorf("value %d: has no name", val.ID)
	}
	if v.names[name] {
		return fmt.Errorf("value %s: the name is used twice, expected unique names", name)
	}
	v.names[name] = true
	v.defined[val] = true
	return nil
}

func (v *verifier) node(n *Node) error {
	types, err := infer(n)
	if err != nil {
		return err
	}
	if n.Device < 0 || n.Device > maxDevice {
		return complain(n, "is on device %d, expected 0 to %d", n.Device, maxDevice)
	}
	for i, in := range n.In {
		if in == nil {
			continue
		}
		if !v.defined[in] {
			return complain(n, "operand %s is %v, which this graph does not define before it", n.Op.In[i].Name, in)
		}
		if d := in.Def; d != nil && d.Device != n.Device && !d.Op.Everywhere && !n.Op.Crosses {
			return complain(n, "operand %s is %v on device %d, expected device %d: insert a transfer", n.Op.In[i].Name, in, d.Device, n.Device)
		}
		if w := v.written[in]; w != nil {
			return complain(n, "operand %s is %v, an old state: node %s has written it, so use its result", n.Op.In[i].Name, in, w.Name())
		}
	}
	for _, w := range n.Op.Writes {
		state := n.In[w[1]]
		if other := v.written[state]; other != nil { // two operands of the node are the same state
			return complain(n, "writes the state %v twice", state)
		}
		v.written[state] = n
	}
	for i, in := range n.In {
		if in != nil && v.written[in] == n && !writes(n.Op, i) {
			return complain(n, "operand %s is %v, a state that the node itself writes", n.Op.In[i].Name, in)
		}
	}
	for i, out := range n.Out {
		if out.Def != n || out.Index != i {
			return complain(n, "result %d, %v, does not point back to its node", i, out)
		}
		if !out.Type.Equal(types[i]) {
			return complain(n, "result %v has type %v, expected %v as the op infers", out, out.Type, types[i])
		}
		if err := v.define(out, out.String()); err != nil {
			return err
		}
	}
	return nil
}

func writes(op *Op, operand int) bool {
	for _, w := range op.Writes {
		if w[1] == operand {
			return true
		}
	}
	return false
}

// infer returns the types of n's results. First it checks the preconditions of every Infer: the
// numbers of operands and results, the presence of required operands, and that attributes are
// known, present if required, and of the right kind.
func infer(n *Node) ([]Type, error) {
	op := n.Op
	if len(n.Out) != op.Out {
		return nil, complain(n, "has %d results, expected %d", len(n.Out), op.Out)
	}
	if len(n.In) != len(op.In) {
		return nil, complain(n, "has %d operands, expected %d", len(n.In), len(op.In))
	}
	for i, o := range op.In {
		if n.In[i] == nil && !o.Optional {
			return nil, complain(n, "operand %s is absent, expected a value", o.Name)
		}
	}
	if err := checkAttrs(n); err != nil {
		return nil, err
	}
	types, err := op.Infer(n)
	if err != nil {
		return nil, complain(n, "%w", err)
	}
	return types, nil
}

// kindOf describes the literals of an attribute's kind.
func kindOf(v any) string {
	switch v.(type) {
	case int64:
		return "an integer"
	case float64:
		return "a number with a point or an exponent, like 1.0"
	case string:
		return "a string in quotes"
	case bool:
		return "true or false"
	}
	return fmt.Sprintf("%T", v)
}

func checkAttrs(n *Node) error {
	known := 0
	for _, spec := range n.Op.Attrs {
		v, ok := n.Attr[spec.Name]
		if !ok {
			if spec.Required {
				return complain(n, "attribute %s is absent, expected %s", spec.Name, kindOf(spec.Default))
			}
			continue
		}
		known++
		if reflect.TypeOf(v) != reflect.TypeOf(spec.Default) {
			return complain(n, "attribute %s is %s, expected %s", spec.Name, literal(v), kindOf(spec.Default))
		}
	}
	if known == len(n.Attr) {
		return nil
	}
	for name := range n.Attr {
		if !n.Op.HasAttr(name) {
			return complain(n, "attribute %s is unknown to the op", name)
		}
	}
	return nil
}

// complain returns an error that names the node by its first result and its op.
func complain(n *Node, format string, args ...any) error {
	return fmt.Errorf("node %s (%s): %w", n.Name(), n.Op.Name, fmt.Errorf(format, args...))
}
