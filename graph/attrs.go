package graph

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Int returns the integer attribute, or 0 where it is absent.
func (a Attrs) Int(name string) int64 { v, _ := a[name].(int64); return v }

// Float returns the floating-point attribute, or 0 where it is absent.
func (a Attrs) Float(name string) float64 { v, _ := a[name].(float64); return v }

// Str returns the string attribute, or "" where it is absent.
func (a Attrs) Str(name string) string { v, _ := a[name].(string); return v }

// Bool returns the boolean attribute, or false where it is absent.
func (a Attrs) Bool(name string) bool { v, _ := a[name].(bool); return v }

// Clone returns a copy in which every int has become the int64 that a node stores, so that
// Attrs{"heads": 14} means what it says.
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
// since both must survive a round trip through text.
func (a Attrs) Equal(b Attrs) bool {
	return maps.EqualFunc(a, b, func(x, y any) bool {
		fx, ok := x.(float64)
		if !ok {
			return x == y
		}
		fy, ok := y.(float64)
		return ok && (math.Float64bits(fx) == math.Float64bits(fy) || fx != fx && fy != fy)
	})
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
			s += ".0" // else it would read as an integer
		}
		return s
	}
	return fmt.Sprint(v)
}
