package graph

import (
	"fmt"
	"slices"
)

// Equal compares two graphs in everything that the text form shows. It returns nil or an error that
// names the first difference.
func Equal(a, b *Graph) error {
	if a.Name != b.Name {
		return fmt.Errorf("names differ: %s and %s", a.Name, b.Name)
	}
	if !slices.Equal(a.Bounds, b.Bounds) {
		return fmt.Errorf("bounds differ: %v and %v", a.Bounds, b.Bounds)
	}
	if err := equalValues("weight", a.Weights, b.Weights, true); err != nil {
		return err
	}
	for i := range min(len(a.Nodes), len(b.Nodes)) {
		if err := equalNodes(a.Nodes[i], b.Nodes[i]); err != nil {
			return fmt.Errorf("nodes %d, %s and %s: %w", i, a.Nodes[i].Name(), b.Nodes[i].Name(), err)
		}
	}
	if len(a.Nodes) != len(b.Nodes) {
		return fmt.Errorf("numbers of nodes differ: %d and %d", len(a.Nodes), len(b.Nodes))
	}
	return equalValues("output", a.Outputs, b.Outputs, false)
}

func equalNodes(a, b *Node) error {
	if a.Op != b.Op {
		return fmt.Errorf("ops differ: %s and %s", a.Op.Name, b.Op.Name)
	}
	if err := equalValues("result", a.Out, b.Out, true); err != nil {
		return err
	}
	if err := equalValues("operand", a.In, b.In, false); err != nil {
		return err
	}
	if !a.Attr.Equal(b.Attr) {
		return fmt.Errorf("attributes differ: %v and %v", a.Attr, b.Attr)
	}
	if a.Device != b.Device {
		return fmt.Errorf("devices differ: %d and %d", a.Device, b.Device)
	}
	return nil
}

// equalValues compares values by name, and also by type if types is set, as for definitions.
func equalValues(what string, a, b []*Value, types bool) error {
	for i := range min(len(a), len(b)) {
		if a[i].String() != b[i].String() {
			return fmt.Errorf("%s %d differs: %v and %v", what, i, a[i], b[i])
		}
		if types && !a[i].Type.Equal(b[i].Type) {
			return fmt.Errorf("types of %s %v differ: %v and %v", what, a[i], a[i].Type, b[i].Type)
		}
		if types && a[i].Part.String() != b[i].Part.String() {
			return fmt.Errorf("%s %v differs: is %v and %v", what, a[i], a[i].Part, b[i].Part)
		}
	}
	if len(a) != len(b) {
		return fmt.Errorf("numbers of %ss differ: %d and %d", what, len(a), len(b))
	}
	return nil
}
