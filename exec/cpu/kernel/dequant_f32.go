package kernel

import "pesti/gguf/quant"

// A dequantizer sets dst to row i of w.
type dequantizer func(dst []float32, w []byte, i int, l *swarSpan)

// fileRow returns the dequantizer for the layout of the file.
func fileRow(info *quant.Info) dequantizer {
	return func(dst []float32, w []byte, i int, _ *swarSpan) {
		rowBytes := len(dst) / info.BlockLen * info.BlockBytes
		info.Dequantize(dst, w[i*rowBytes:(i+1)*rowBytes])
	}
}

// dequantTile returns the tile kernel that dequantizes four weight rows at a time and multiplies them
// in float32.
func dequantTile(dequantize dequantizer) func(y []float32, w []byte, n int, x *activation) {
	return func(y []float32, w []byte, n int, x *activation) {
		k := x.k
		for i := 0; i < n; i += 4 {
			rows := min(4, n-i)
			var row [4][]float32
			for j := range row {
				// A missing row repeats the last one, so that the same code computes any number of rows.
				at := min(j, rows-1)
				row[j] = x.w[at*k : (at+1)*k]
				if j == at {
					dequantize(row[j], w, i+j, x.swar)
				}
			}
			for m := range x.m {
				var p [4]float32
				p[0], p[1], p[2], p[3] = dot4(x.rows[m*k:(m+1)*k], row[0], row[1], row[2], row[3])
				copy(y[m*x.width+i:][:rows], p[:])
			}
		}
	}
}

// dot4 returns the products of x with four rows of its length. Each product is summed in blocks of 16
// elements with two partial sums, and blocks are added in order. The error grows with the number of
// blocks, not of elements.
func dot4(x, w0, w1, w2, w3 []float32) (s0, s1, s2, s3 float32) {
	w0, w1, w2, w3 = w0[:len(x)], w1[:len(x)], w2[:len(x)], w3[:len(x)]
	i := 0
	for ; i+16 <= len(x); i += 16 {
		x, w0, w1, w2, w3 := (*[16]float32)(x[i:]), (*[16]float32)(w0[i:]), (*[16]float32)(w1[i:]), (*[16]float32)(w2[i:]), (*[16]float32)(w3[i:])
		var a0, a1, a2, a3, b0, b1, b2, b3 float32
		for j := 0; j < 16; j += 2 {
			a, b := x[j], x[j+1]
			a0 += float32(a * w0[j])
			a1 += float32(a * w1[j])
			a2 += float32(a * w2[j])
			a3 += float32(a * w3[j])
			b0 += float32(b * w0[j+1])
			b1 += float32(b * w1[j+1])
			b2 += float32(b * w2[j+1])
			b3 += float32(b * w3[j+1])
		}
		s0 += a0 + b0
		s1 += a1 + b1
		s2 += a2 + b2
		s3 += a3 + b3
	}
	for ; i < len(x); i++ {
		a := x[i]
		s0 += float32(a * w0[i])
		s1 += float32(a * w1[i])
		s2 += float32(a * w2[i])
		s3 += float32(a * w3[i])
	}
	return
}
