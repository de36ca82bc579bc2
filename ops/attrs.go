package ops

import (
	"fmt"
	"slices"
	"strings"

	"pesti/graph"
)

// need returns the specification of a required attribute; example gives its kind.
func need(name string, example any) graph.AttrSpec {
	return graph.AttrSpec{Name: name, Default: example, Required: true}
}

// may returns the specification of an optional attribute with a default.
func may(name string, value any) graph.AttrSpec {
	return graph.AttrSpec{Name: name, Default: value}
}

// Values of the attribute "layout" of rope.
const (
	Pairs  = "pairs"  // rotates dims 2i and 2i+1
	Halves = "halves" // rotates dims i and i + rot/2
)

// rotaryAttrs are the attributes of RoPE.
var rotaryAttrs = []graph.AttrSpec{
	need("rot", int64(0)), need("base", 0.0), may("freq_scale", 1.0),
	may("ramp_low", 0.0), may("ramp_high", 0.0), may("magnitude", 1.0), need("layout", ""),
}

var ropeAttrs = append([]graph.AttrSpec{need("heads", int64(0)), need("head_dim", int64(0))}, rotaryAttrs...)

func checkRope(n *graph.Node) error {
	rot, dim := n.Attr.Int("rot"), n.Attr.Int("head_dim")
	if rot < 0 || rot%2 != 0 || rot > dim {
		return fmt.Errorf("rot is %d, expected an even number up to head_dim = %d", rot, dim)
	}
	if base := n.Attr.Float("base"); rot > 0 && !(base > 0) {
		return fmt.Errorf("base is %v, expected a positive number", base)
	}
	low, high := n.Attr.Float("ramp_low"), n.Attr.Float("ramp_high")
	if none := low == 0 && high == 0; !none && !(0 <= low && low < high) {
		return fmt.Errorf("the ramp is from %v to %v, expected 0 ≤ ramp_low < ramp_high, or neither", low, high)
	}
	for _, name := range []string{"freq_scale", "magnitude"} {
		if x := n.Float(name); !(x > 0) {
			return fmt.Errorf("%s is %v, expected a positive number", name, x)
		}
	}
	return oneOf(n, "layout", Pairs, Halves)
}

func checkHeads(n *graph.Node) error {
	heads, kv := n.Attr.Int("heads"), n.Attr.Int("kv_heads")
	if heads <= 0 || kv <= 0 || heads%kv != 0 {
		return fmt.Errorf("heads is %d and kv_heads %d, expected heads to be a positive multiple of kv_heads", heads, kv)
	}
	if dim := n.Attr.Int("head_dim"); dim <= 0 {
		return fmt.Errorf("head_dim is %d, expected a positive number", dim)
	}
	return notNegative(n, "window")
}

func notNegative(n *graph.Node, name string) error {
	if v := n.Attr.Int(name); v < 0 {
		return fmt.Errorf("%s is %d, expected 0 or more", name, v)
	}
	return nil
}

func oneOf(n *graph.Node, name string, values ...string) error {
	if v := n.Attr.Str(name); !slices.Contains(values, v) {
		return fmt.Errorf("%s is %q, expected one of %s", name, v, strings.Join(values, ", "))
	}
	return nil
}
