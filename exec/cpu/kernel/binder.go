package kernel

import (
	"fmt"
	"unsafe"

	"pesti/exec/plan"
	"pesti/gguf/quant"
)

// A binder reads a Binding and keeps the first error, so that a bind function can read all operands
// and parameters before it checks for errors.
type binder struct {
	*Binding
	isas []string // instruction sets that may be used
	err  error
}

func (b *binder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// operand returns the operand of a role. A missing one is an error.
func (b *binder) operand(role string) Operand {
	o, ok := b.Operands[role]
	if !ok {
		b.fail("operand %s is missing", role)
	}
	return o
}

// f32 returns a float32 operand.
func (b *binder) f32(role string) []float32 {
	o := b.operand(role)
	if o.Format != "f32" {
		b.fail("operand %s is %s, expected f32", role, o.Format)
		return nil
	}
	return view[float32](o.Data)
}

// optionalF32 returns a float32 operand, or nil if the step does not have it.
func (b *binder) optionalF32(role string) []float32 {
	if _, ok := b.Operands[role]; !ok {
		return nil
	}
	return b.f32(role)
}

// i32 returns an int32 operand.
func (b *binder) i32(role string) []int32 {
	o := b.operand(role)
	if o.Format != "i32" {
		b.fail("operand %s is %s, expected i32", role, o.Format)
		return nil
	}
	return view[int32](o.Data)
}

// A matrix is a weight in the layout of the file or in panels.
type matrix struct {
	*quant.Info
	data   []byte
	scales []float32 // of rows, or nil
	layout *Layout   // nil for the layout of the file
	swar   *swarSpan // for rows in a layout
	staged bool      // row m is that of the batch's m-th token
}

// gather dequantizes into dst the row of the batch's token with that index and id.
func (m *matrix) gather(dst []float32, token, id int) {
	if m.staged {
		id = token
	}
	m.row(dst, id)
}

// row dequantizes row i into dst.
func (m *matrix) row(dst []float32, i int) {
	if m.layout != nil {
		m.layout.row(dst, m.data, i, m.swar)
	} else {
		bytes := len(dst) / m.BlockLen * m.BlockBytes
		m.Dequantize(dst, m.data[i*bytes:(i+1)*bytes])
	}
	if m.scales != nil {
		for j := range dst {
			dst[j] *= m.scales[i]
		}
	}
}

// weight returns a weight.
func (b *binder) weight(role string) matrix {
	o := b.operand(role)
	info, ok := quant.ByName(o.Format)
	if !ok || info.Removed || info.Dequantize == nil {
		b.fail("weight %s has type %q, which cannot be dequantized", role, o.Format)
		info = &quant.Info{BlockLen: 1}
	}
	if (info.Type == quant.F8E4M3) != (o.Scales != nil) {
		b.fail("weight %s of type %q has %d scales of rows, expected them with type f8_e4m3 alone", role, o.Format, len(o.Scales))
	}
	m := matrix{Info: info, data: o.Data, scales: o.Scales, staged: o.Staged}
	if o.Layout == "" {
		return m
	}
	if m.layout, ok = LookupLayout(o.Layout, info.Type); !ok {
		b.fail("weight %s of type %q is in layout %q, which that type does not have", role, o.Format, o.Layout)
	}
	m.swar = new(swarSpan)
	return m
}

// param returns a parameter of the step. Its value has another type than T if the default in the signature does,
// or if the kernel reads it as another kind.
func param[T any](b *binder, name string) T {
	v := b.Step.Param(name)
	if v, ok := v.(T); ok {
		return v
	}
	var zero T
	if v == nil {
		b.fail("parameter %s is missing, expected type %T", name, zero)
	} else {
		b.fail("parameter %s is %v of type %T, expected type %T: its kind, its default and the kernel must agree", name, v, v, zero)
	}
	return zero
}

func (b *binder) int(name string) int       { return int(param[int64](b, name)) }
func (b *binder) float(name string) float64 { return param[float64](b, name) }
func (b *binder) str(name string) string    { return param[string](b, name) }

// scratch returns the next n elements of the worker's scratch.
func scratch[T any](b *binder, rest *[]byte, n int) []T {
	var zero T
	size := n * int(unsafe.Sizeof(zero))
	if size > len(*rest) {
		b.fail("scratch of %d bytes is too small, expected %d more", len(b.Scratch), size-len(*rest))
		return nil
	}
	s := view[T]((*rest)[:size])
	*rest = (*rest)[size:]
	return s
}

// scratchOne returns one T in the worker's scratch.
func scratchOne[T any](b *binder, rest *[]byte) *T {
	if s := scratch[T](b, rest, 1); s != nil {
		return &s[0]
	}
	return new(T) // scratch has recorded the error; the bind function goes on
}

// view returns data as elements of type T. The caller guarantees the alignment.
func view[T any](data []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(zero)))
}

// rows returns the function that gives the number of rows that the step processes in a run.
func (b *binder) rows() func(r *Run) int {
	if b.Step.Rows == "R" {
		return func(r *Run) int { return r.R }
	}
	return func(r *Run) int { return r.T }
}

// split returns the worker's share of the step.
func (b *binder) split() split {
	return split{b.Step.Split, b.Worker, b.Workers}
}

// A split is one worker's share of a step.
type split struct {
	plan.Split
	worker, workers int
}

// of returns the worker's half-open range of n items, from plan.Split.Share.
func (s split) of(n int) (lo, hi int) {
	l, h := s.Share(int64(n), int64(s.worker), int64(s.workers))
	return int(l), int(h)
}
