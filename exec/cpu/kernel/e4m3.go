package kernel

import "pesti/gguf/numfmt"

func portableWidenE4M3(dst []float32, src []uint8) {
	for i, b := range src[:len(dst)] {
		dst[i] = numfmt.E4M3ToF32(b)
	}
}

func narrowE4M3(dst []uint8, src []float32) {
	for i, x := range src[:len(dst)] {
		dst[i] = numfmt.F32ToE4M3(x)
	}
}
