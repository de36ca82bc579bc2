package kernel

import "pesti/ops/ref"

// gate returns the function of the activation that the step names.
func (b *binder) gate() gate {
	g := b.vectors().gates[b.str("act")]
	if g == nil {
		b.fail("act=%q is not an activation", b.str("act"))
	}
	return g
}

// multiplied returns the gate that applies act and then multiplies.
func multiplied(act func(dst, x []float32)) gate {
	return func(dst, x, up []float32) {
		act(dst, x)
		ref.Mul(dst, dst, up)
	}
}
