package graph_test

import (
	"strings"
	"testing"

	"pesti/graph"
)

// parts has a part of each kind: columns and rows of matrices, elements of a vector.
const parts = `graph parts (T <= 2)
  @embd            : f32[10, 64]
  @w.columns32-64  : q4_0[64, 32] = columns of w[64, 64] from 32
  @"odd w.rows4-8" : q8_0[4, 32] = rows of "odd w"[8, 32] from 4
  @b.rows4-8       : f32[4] = rows of b[8] from 4

  %tokens : i32[T]     = input {dtype: "i32", sym: "T"}
  %x      : f32[T, 64] = get_rows @embd, %tokens
  %y      : f32[T, 32] = matmul %x, @v, _
  %z      : f32[T, 64] = matmul %y, @w.columns32-64, _
  %u      : f32[T, 4]  = matmul %y, @"odd w.rows4-8", _
  %o      : f32[T, 4]  = add_bias %u, @b.rows4-8

  output %z, %o
`

func TestPartsRoundTrip(t *testing.T) {
	full := strings.Replace(parts, "  @w.col", "  @v               : f32[32, 64]\n  @w.col", 1)
	g := parse(t, full)
	if err := graph.Verify(g); err != nil {
		t.Fatal(err)
	}
	if got := graph.Print(g.Clone()); got != full {
		t.Errorf("printed\n%s\nexpected\n%s", got, full)
	}
	c := g.Clone()
	c.Weights[2].Part.From = 0
	if g.Weights[2].Part.From != 32 {
		t.Error("a clone shares parts with its graph")
	}
	if err := graph.Equal(g, c); err == nil || !strings.Contains(err.Error(), "weight @w.columns32-64 differs: is columns of w[64, 64] from 32 and columns of w[64, 64] from 0") {
		t.Errorf("%v", err)
	}
	for _, e := range []struct{ old, new, want string }{
		{"columns of w[64, 64] from 32", "columns of w[64, 64] from 33", "elements 33 to 65 of dim 1, expected at least one, all in w"},
		{"columns of w[64, 64] from 32", "columns of w[64, 128] from 33", "expected multiples of 32, a block of q4_0"},
		{"columns of w[64, 64] from 32", "columns of w[63, 64] from 32", "expected the dims of w of"},
		{"columns of w[64, 64] from 32", "columns of w[64] from 32", "as many dims as w"},
		{"columns of w[64, 64] from 32", "columns of w[64, T] from 32", "except dim 1"},
		{"columns of w[64, 64] from 32", "columns of w[64, 64] from -32", "expected at least one"},
		{"columns of w[64, 64] from 32", "columns of w[64, 9223372036854775807] from 9223372036854775807", "expected at least one"},
		{"rows of b[8] from 4", "rows of b[8] from 5", "elements 5 to 9 of dim 0"},
		{"rows of b[8] from 4", "columns of b[8] from 4", "as many dims as b"},
	} {
		edited := strings.Replace(full, e.old, e.new, 1)
		if err := graph.Verify(parse(t, edited)); err == nil || !strings.Contains(err.Error(), e.want) {
			t.Errorf("%s: %v, expected %s", e.new, err, e.want)
		}
	}
	for _, e := range []struct{ old, new, want string }{
		{"= columns of", "= slabs of", "expected rows or columns"},
		{"columns of", "columns", "expected of"},
		{"from 32", "from x", "expected an index, an integer"},
		{"from 32", "", "expected from"},
	} {
		if _, err := graph.Parse(strings.Replace(full, e.old, e.new, 1), noOps); err == nil || !strings.Contains(err.Error(), e.want) {
			t.Errorf("%s: %v, expected %s", e.new, err, e.want)
		}
	}
}

// noOps finds no op. It serves texts without nodes.
func noOps(string) (*graph.Op, bool) { return nil, false }

func TestPartOf(t *testing.T) {
	g := graph.New("g")
	w, err := g.Weight("w", graph.Type{DType: "q4_k", Shape: []graph.Dim{graph.N(4), graph.N(512)}})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := g.PartOf(w, 0, 0, 4); v != w || err != nil {
		t.Errorf("all rows are %v, %v, expected the weight", v, err)
	}
	v, err := g.PartOf(w, 1, 256, 512)
	if err != nil || v.Name != "w.columns256-512" || v.Type.String() != "q4_k[4, 256]" || v.Tensor().Name != "w" || len(g.Weights) != 2 {
		t.Fatalf("%v, %v, weights %v", v, err, g.Weights)
	}
	if again, err := g.PartOf(w, 1, 256, 512); again != v || err != nil {
		t.Errorf("the same part is %v, %v, expected the one that there is", again, err)
	}
	for _, c := range []struct {
		w        *graph.Value
		axis     int
		from, to int64
	}{{w, 0, 0, 5}, {w, 0, 2, 2}, {w, 0, -1, 2}, {w, 2, 0, 1}, {w, -1, 0, 1}, {w, 1, 0, 128}, {w, 1, 128, 384}, {v, 0, 0, 1}} {
		if _, err := g.PartOf(c.w, c.axis, c.from, c.to); err == nil {
			t.Errorf("%v: axis %d from %d to %d is no error", c.w, c.axis, c.from, c.to)
		}
	}
}
