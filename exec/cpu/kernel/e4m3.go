package kernel

import "pesti/ops/ref"

// e4m3Values has the value of every E4M3 number.
var e4m3Values = func() (values [1 << 8]float32) {
	for b := range values {
		values[b] = ref.E4M3Value(uint8(b))
	}
	return values
}()

func portableWidenE4M3(dst []float32, src []uint8) {
	for i, b := range src[:len(dst)] {
		dst[i] = e4m3Values[b]
	}
}

func narrowE4M3(dst []uint8, src []float32) {
	for i, x := range src[:len(dst)] {
		dst[i] = ref.E4M3(x)
	}
}
