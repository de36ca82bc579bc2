package kernel

import "pesti/ops/ref"

// gate returns the gate for the activation function that the step names.
func (b *binder) gate() gate {
	g := b.vectors().gates[b.str("act")]
	if g == nil {
		b.fail("act=%q is not an activation", b.str("act"))
	}
	return g
}

// actThenMul returns the gate that applies act and then multiplies.
func actThenMul(act func(dst, x []float32)) gate {
	return func(dst, x, up []float32) {
		act(dst, x)
		ref.Mul(dst, dst, up)
	}
}

// gatedStore returns a function that stores act(gate) ⊙ up at element at of row m of operand y, in the
// format of y, whose rows have n elements. The length of gate and up is at most the argument most, and a multiple of
// the format's block. For each of these elements the function needs 4 bytes of scratch, and 19/8 more for q8x2 or
// 11/8 for q8.
func (b *binder) gatedStore(rest *[]byte, most, n int) func(m, at int, gate, up []float32) {
	act, vec := b.gate(), b.vectors()
	switch format := b.operand("y").Format; format {
	case "q8x2", "q8":
		y, row, quantize := b.planar("y"), scratch[float32](b, rest, most), vec.quantize[format]
		blocks := scratch[byte](b, rest, y.bytes(most))
		return func(m, at int, gate, up []float32) {
			part := row[:len(gate)]
			act(part, gate, up)
			quantized := blocks[:y.bytes(len(part))]
			quantize(quantized, part)
			y.put(m, at, quantized, len(part))
		}
	case "bf16":
		data, row := b.operand("y").Data, scratch[float32](b, rest, most)
		return func(m, at int, gate, up []float32) {
			part := row[:len(gate)]
			act(part, gate, up)
			vec.round(data[2*(m*n+at):][:2*len(part)], part)
		}
	default:
		y := b.f32("y")
		return func(m, at int, gate, up []float32) { act(y[m*n+at:][:len(gate)], gate, up) }
	}
}
