package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// A Part describes a weight that is a range of a tensor's rows, or a range of the elements of every
// row. The weight's dims give the length of the range.
type Part struct {
	Of   string  // the tensor
	Dims []int64 // of the whole tensor
	Axis int     // of the cut: 0 for rows and for the elements of a vector
	From int64   // the first row or element
}

// axes are the words for axes in the text form.
var axes = []string{"rows", "columns"}

// Tensor returns the name of the tensor that holds the weight.
func (w *Weight) Tensor() string {
	return cmp.Or(w.Part.Of, w.Name)
}

// TensorDims returns the dims of that tensor.
func (w *Weight) TensorDims() []int64 {
	if w.Part.Of != "" {
		return w.Part.Dims
	}
	return w.Dims
}

// String returns the text form of the part: columns of @blk.0.ffn_down.weight[896, 4864] from 2560;
// "" for a whole tensor.
func (p *Part) String() string {
	if p.Of == "" {
		return ""
	}
	return fmt.Sprintf("%s of @%s%s from %d", axisWord(p.Axis), quote(p.Of), dims(p.Dims), p.From)
}

// axisWord returns the word for an axis, or its number if it has no word.
func axisWord(axis int) string {
	if axis < 0 || axis >= len(axes) {
		return strconv.Itoa(axis)
	}
	return axes[axis]
}

// part parses the optional text form of a part.
func (s *scanner) part() (p Part) {
	for axis, word := range axes {
		if s.maybe(word + " of ") {
			p.Axis, p.Of = axis, s.key("@").word("a tensor name")
			p.Dims = s.dims()
			p.From = s.key("from ").integer()
			break
		}
	}
	return p
}

// dims parses "[896,4864]".
func (s *scanner) dims() (list []int64) {
	s.key("[")
	for {
		list = append(list, s.integer())
		if !s.maybe(",") {
			break
		}
	}
	s.key("]")
	return list
}

// checkPart checks that a part lies in its tensor. The executor checks that it begins and ends
// between blocks of the type.
func checkPart(w *Weight) error {
	p := &w.Part
	if p.Of == "" {
		return nil
	}
	if p.Axis < 0 || p.Axis >= min(len(w.Dims), len(axes)) || len(p.Dims) != len(w.Dims) {
		return fmt.Errorf("is %v, expected rows or columns of a tensor of %d dims", p, len(w.Dims))
	}
	whole := slices.Clone(w.Dims)
	whole[p.Axis] = p.Dims[p.Axis]
	if !slices.Equal(whole, p.Dims) || p.Dims[p.Axis] < w.Dims[p.Axis] || p.From < 0 || p.From > p.Dims[p.Axis]-w.Dims[p.Axis] {
		return fmt.Errorf("is %v from %d along dim %d of %s%v, expected a part of it", w.Dims, p.From, p.Axis, p.Of, p.Dims)
	}
	return nil
}
