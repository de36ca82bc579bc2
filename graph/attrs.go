package graph

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Int returns the integer attribute, or 0 if it is absent.
func (a Attrs) Int(name string) int64 { v, _ := a[name].(int64); return v }

// Float returns the floating-point attribute, or 0 if it is absent.
func (a Attrs) Float(name string) float64 { v, _ := a[name].(float64); return v }

// Str returns the string attribute, or "" if it is absent.
func (a Attrs) Str(name string) string { v, _ := a[name].(string); return v }

// Bool returns the boolean attribute, or false if it is absent.
func (a Attrs) Bool(name string) bool { v, _ := a[name].(bool); return v }

// HasAttr reports whether the op has an attribute of that name.
func (op *Op) HasAttr(name string) bool { return op.attr(name) != nil }

// attr returns the row of an attribute, or nil.
func (op *Op) attr(name string) *AttrSpec {
	for i := range op.Attrs {
		if op.Attrs[i].Name == name {
			return &op.Attrs[i]
		}
	}
	return nil
}

// Attribute returns an attribute of the node, or its default if the node does not set it. It
// returns nil for a missing required attribute and for a name that the op does not have.
func (n *Node) Attribute(name string) any {
	if v, ok := n.Attr[name]; ok {
		return v
	}
	if spec := n.Op.attr(name); spec != nil && !spec.Required {
		return spec.Default
	}
	return nil
}

// Float returns a floating-point attribute, or its default if the node does not set it.
func (n *Node) Float(name string) float64 { v, _ := n.Attribute(name).(float64); return v }

// IsDefault reports whether the attribute has its default value, so that the node means the same
// without it.
func (n *Node) IsDefault(name string) bool {
	spec := n.Op.attr(name)
	return spec != nil && !spec.Required && sameValue(n.Attribute(name), spec.Default)
}

// SameAttr reports whether two nodes have the same value of an attribute. An absent attribute has
// its default.
func (n *Node) SameAttr(o *Node, name string) bool {
	return sameValue(n.Attribute(name), o.Attribute(name))
}

// Clone returns a copy in which every int is converted to the int64 that nodes store, so that
// Attrs{"heads": 14} works.
func (a Attrs) Clone() Attrs {
	c := make(Attrs, len(a))
	for name, v := range a {
		if i, ok := v.(int); ok {
			v = int64(i)
		}
		c[name] = v
	}
	return c
}

// Equal reports whether a and b hold the same attributes. NaN equals NaN, and 0 differs from −0,
// because a round trip through text must keep both.
func (a Attrs) Equal(b Attrs) bool {
	return maps.EqualFunc(a, b, sameValue)
}

func sameValue(x, y any) bool {
	fx, ok := x.(float64)
	if !ok {
		return x == y
	}
	fy, ok := y.(float64)
	return ok && (math.Float64bits(fx) == math.Float64bits(fy) || fx != fx && fy != fy)
}

// String returns the attributes in the graph's text form, sorted by name: {eps: 1e-06, group: 64}.
// No attributes give "".
func (a Attrs) String() string {
	if len(a) == 0 {
		return ""
	}
	var b strings.Builder
	sep := "{"
	for _, name := range slices.Sorted(maps.Keys(a)) {
		b.WriteString(sep + quoted(name) + ": " + literal(a[name]))
		sep = ", "
	}
	b.WriteString("}")
	return b.String()
}

// literal prints one attribute so that it parses to the same kind and the same bits.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if strings.Trim(s, "-0123456789") == "" {
			s += ".0" // otherwise it parses as an integer
		}
		return s
	}
	return fmt.Sprint(v)
}
