package graph

import (
	"fmt"
	"slices"
)

// A Part describes a weight that is a range of a tensor's rows, or a range of the elements of every
// row. The weight's type gives the length of the range.
type Part struct {
	Of   *Value // the tensor, with its name and type
	Axis int    // of the cut: 0 for rows and for the elements of a vector
	From int64  // the first row or element
}

// axes are the words for axes in the text form.
var axes = [...]string{"rows", "columns"}

// String returns the part in the graph's text form: columns of blk.0.ffn_down.weight[896, 4864] from 2560.
func (p *Part) String() string {
	if p == nil {
		return "a whole tensor"
	}
	dims := Type{Shape: p.Of.Type.Shape}
	return fmt.Sprintf("%s of %s%v from %d", axes[p.Axis], quoted(p.Of.Name), dims, p.From)
}

// Tensor returns the tensor that holds the weight.
func (v *Value) Tensor() *Value {
	if v.Part != nil {
		return v.Part.Of
	}
	return v
}

// PartOf returns the part [from, to) of a weight along an axis, and declares it at its first use.
// The part with all elements is the weight itself. A part of a part is an error.
func (g *Graph) PartOf(w *Value, axis int, from, to int64) (*Value, error) {
	if w.Part != nil || axis < 0 || axis >= min(len(w.Type.Shape), len(axes)) || from < 0 || from >= to || to > w.Type.Shape[axis].N {
		return nil, fmt.Errorf("weight %s of %v: has no part from %d to %d along axis %d", w.Name, w.Type, from, to, axis)
	}
	if from == 0 && to == w.Type.Shape[axis].N {
		return w, nil
	}
	t := Type{w.Type.DType, slices.Clone(w.Type.Shape)}
	t.Shape[axis] = N(to - from)
	p := (&Part{w, axis, from}).clone()
	if err := p.check(t); err != nil {
		return nil, fmt.Errorf("weight %s: %w", w.Name, err)
	}
	v, err := g.Weight(fmt.Sprintf("%s.%s%d-%d", w.Name, axes[axis], from, to), t)
	if err == nil {
		v.Part = p
	}
	return v, err
}

// clone returns a copy that shares nothing with p.
func (p *Part) clone() *Part {
	return &Part{Of: &Value{Name: p.Of.Name, Type: Type{p.Of.Type.DType, slices.Clone(p.Of.Type.Shape)}}, Axis: p.Axis, From: p.From}
}

// check checks that a part of type t lies in its tensor, and that rows are cut between storage
// blocks.
func (p *Part) check(t Type) error {
	of := p.Of.Type
	if len(t.Shape) != len(of.Shape) || p.Axis >= len(of.Shape) || t.DType != of.DType {
		return fmt.Errorf("is %v, expected the element type and as many dims as %s of %v, of which it is part", t, p.Of.Name, of)
	}
	for i, d := range t.Shape {
		whole := of.Shape[i]
		switch {
		case whole.Sym != Const || i != p.Axis && d != whole:
			return fmt.Errorf("is %v, expected the dims of %s of %v except dim %d", t, p.Of.Name, of, p.Axis)
		case i == p.Axis && (p.From < 0 || d.N < 1 || p.From > whole.N-d.N):
			return fmt.Errorf("is elements %d to %d of dim %d, expected at least one, all in %s of %v", p.From, p.From+d.N, i, p.Of.Name, of)
		}
	}
	last := len(t.Shape) - 1
	block, _ := BlockOf(t.DType)
	if n := t.Shape[last].N; p.Axis == last && (p.From%block != 0 || n%block != 0) {
		return fmt.Errorf("is elements %d to %d of each row of %s, expected multiples of %d, a block of %s", p.From, p.From+n, p.Of.Name, block, t.DType)
	}
	return nil
}

// part parses "columns of name[896, 4864] from 2560".
func (p *parser) part(t DType) *Part {
	axis := p.expect('w', "rows or columns")
	part := &Part{Axis: slices.Index(axes[:], axis.text), Of: &Value{}}
	if part.Axis < 0 {
		p.fail(axis, "found %v, expected rows or columns", axis)
		part.Axis = 0
	}
	p.word("of")
	part.Of.Name = p.name("the name of a tensor").text
	part.Of.Type = Type{t, p.dims()}
	p.word("from")
	part.From = p.int("an index")
	return part
}

// word consumes a given word.
func (p *parser) word(want string) {
	if t := p.expect('w', want); t.text != want {
		p.fail(t, "found %v, expected %s", t, want)
	}
}
