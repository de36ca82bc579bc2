package layers

import (
	"reflect"
	"testing"
)

func TestOf(t *testing.T) {
	for name, want := range map[string]int{
		"blk.0.attn_q.weight": 0, "blk.3.": 3, "blk.125.out": 125, "blk.3.blk.4.x": 3,
		"": -1, "output.weight": -1, "blk.": -1, "blk..x": -1, "blk.3": -1, "blk.3x.y": -1, "blk.x.y": -1, "xblk.3.y": -1,
		"blk.-1.x": -1, "blk.+1.x": -1, "blk.03.x": -1, "blk.99999999999999999999.x": -1, "blk.N.x": -1, "BLK.3.x": -1,
	} {
		got, ok := Of(name)
		if ok != (want >= 0) || ok && got != want || !ok && got != 0 {
			t.Errorf("Of(%q) = %d, %t, want layer %d", name, got, ok, want)
		}
	}
}

type note struct {
	place, why string
	n          int
}

func texts(n *note) []*string { return []*string{&n.place, &n.why} }

func TestMerge(t *testing.T) {
	type merged = Merged[note]
	for _, c := range []struct {
		name string
		list []note
		want []merged
	}{
		{"nothing", nil, nil},
		{"outside of layers", []note{{"out", "a", 1}, {"out", "a", 1}, {"", "", 0}},
			[]merged{{note{"out", "a", 1}, nil}, {note{"out", "a", 1}, nil}, {note{}, nil}}},
		{"one layer keeps its number", []note{{"blk.7.x", "after blk.7.y and blk.6.y", 1}},
			[]merged{{note{"blk.7.x", "after blk.7.y and blk.6.y", 1}, []int{7}}}},
		{"the same layer twice", []note{{"blk.7.x", "a", 1}, {"blk.7.x", "a", 1}},
			[]merged{{note{"blk.7.x", "a", 1}, []int{7}}}},
		{"several layers, in any order", []note{{"blk.10.x", "blk.10.y blk.10.z", 1}, {"blk.2.x", "blk.2.y blk.2.z", 1}, {"blk.10.x", "blk.10.y blk.10.z", 1}},
			[]merged{{note{"blk.N.x", "blk.N.y blk.N.z", 1}, []int{2, 10}}}},
		{"a name of another layer", []note{{"blk.1.x", "blk.0.y", 1}, {"blk.2.x", "blk.0.y", 1}, {"blk.3.x", "blk.2.y", 1}},
			[]merged{{note{"blk.N.x", "blk.0.y", 1}, []int{1, 2}}, {note{"blk.3.x", "blk.2.y", 1}, []int{3}}}},
		{"blk.1. is not in blk.11.", []note{{"blk.1.x", "blk.11.y", 1}, {"blk.2.x", "blk.11.y", 1}},
			[]merged{{note{"blk.N.x", "blk.11.y", 1}, []int{1, 2}}}},
		{"other fields must be equal", []note{{"blk.0.x", "a", 1}, {"blk.1.x", "a", 2}, {"blk.2.x", "b", 1}, {"blk.3.y", "a", 1}, {"blk.4.x", "a", 1}},
			[]merged{{note{"blk.N.x", "a", 1}, []int{0, 4}}, {note{"blk.1.x", "a", 2}, []int{1}}, {note{"blk.2.x", "b", 1}, []int{2}}, {note{"blk.3.y", "a", 1}, []int{3}}}},
	} {
		before := append([]note(nil), c.list...)
		if got := Merge(c.list, texts); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if !reflect.DeepEqual(c.list, before) {
			t.Errorf("%s: the list was changed to %+v", c.name, c.list)
		}
	}
}
