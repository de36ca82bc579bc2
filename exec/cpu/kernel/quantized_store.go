package kernel

// quantizedStore returns a function that stores row m of operand y in its format, q8x2, q8 or bf16.
func (b *binder) quantizedStore(vec *vectors) func(m int, x []float32) {
	if b.operand("y").Format == "bf16" {
		data, size := b.operand("y").Data, 2*b.int("n")
		return func(m int, x []float32) { vec.round(data[m*size:(m+1)*size], x) }
	}
	y, quantize := b.planar("y"), vec.quantize[b.operand("y").Format]
	return func(m int, x []float32) { quantize(y.row(m), x) }
}
