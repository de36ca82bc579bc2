package quant

// Q8_K: 256 elements as x = d·q. Block: f32 d, 256 signed bytes, 16 sums i16 of
// 16 of them, which serve products only. Made for activations.

func dequantizeQ8_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		y, b := (*[256]float32)(dst), (*[292]byte)(src)
		d := readF32(b[0:])
		for i, q := range b[4:260] {
			y[i] = d * float32(int8(q))
		}
		dst, src = dst[256:], src[292:]
	}
}
