package quant

import (
	"math"

	"pesti/gguf/numfmt"
)

// This file chooses the scales of the K-quants. Mapping the full range of a
// sub-block to the levels wastes levels on outliers. So for each sub-block a few
// step sizes are tried: each step gives levels, for which least squares give the
// best scale, and the scale with the smallest weighted squared error is kept.
// Large elements have a greater weight, since they affect products more. A
// sub-block with NaN or infinite elements, which these types cannot store, becomes
// zeros.
//
// Products are converted to their type before they are added, so that the compiler
// does not fuse multiplication and addition: the result is the same bytes on every
// machine.

// maxF16 is the largest finite float16. With a larger scale, a block of finite
// values would become NaN.
const maxF16 = 65504

// fitSubBlocks chooses d, dmin and the 6-bit scales of a block of eight
// sub-blocks x ≈ (d·s)·q − (dmin·m), q in 0…top, writes them to head, and the
// levels to q.
func fitSubBlocks(q *[256]uint8, head *[16]byte, x *[256]float32, top int) {
	var scale, low [8]float64
	for j := range 8 {
		scale[j], low[j] = fitAffine((*[32]float32)(x[32*j:]), top)
	}
	d, s := sixBit(&scale)
	dmin, m := sixBit(&low)
	le.PutUint16(head[0:], d)
	le.PutUint16(head[2:], dmin)
	packScales((*[12]byte)(head[4:]), &s, &m)

	stored, offset := subScales(head)
	for i, v := range x {
		q[i] = level((float64(v)+float64(offset[i/32]))/float64(stored[i/32]), top)
	}
}

// fitAffine returns the scale and the offset of x ≈ scale·q − low, both ≥ 0.
func fitAffine(x *[32]float32, top int) (scale, low float64) {
	lowest, highest := 0.0, 0.0
	var squares float64
	for _, v := range x {
		lowest, highest = min(lowest, float64(v)), max(highest, float64(v))
		squares += float64(float64(v) * float64(v))
	}
	span := highest - lowest
	if !(span > 0) || math.IsInf(span, 0) {
		return 0, 0
	}
	rms := math.Sqrt(squares / 32)
	best := math.Inf(1)
	for t := -10; t <= 10; t++ {
		step := span / (float64(top) + float64(0.1*float64(t)))
		// Least squares over scale and low, given the levels.
		var w, wq, wqq, wx, wxq, wxx float64
		for _, v := range x {
			v := float64(v)
			k := float64(level((v-lowest)/step, top))
			a := rms + math.Abs(v)
			w += a
			wq += float64(a * k)
			wqq += float64(a * k * k)
			wx += float64(a * v)
			wxq += float64(a * v * k)
			wxx += float64(a * v * v)
		}
		// low is 0 if it would be negative. The scale is 0 if all levels are 0, as
		// for elements that are all the same negative number.
		s, l := 0.0, max(0, -wx/w)
		if wqq > 0 {
			s, l = wxq/wqq, 0
		}
		if det := float64(w*wqq) - float64(wq*wq); det > 0 {
			if l0 := (float64(wq*wxq) - float64(wqq*wx)) / det; l0 > 0 {
				s, l = (float64(w*wxq)-float64(wq*wx))/det, l0
			}
		}
		if !(s >= 0) {
			continue
		}
		e := wxx + float64(s*s*wqq) + float64(l*l*w) - float64(2*s*wxq) + float64(2*l*wx) - float64(2*s*l*wq)
		if e < best {
			best, scale, low = e, s, l
		}
	}
	return scale, low
}

// sixBit stores eight numbers ≥ 0 as d·s with 6-bit s.
func sixBit(v *[8]float64) (d uint16, s [8]uint8) {
	top := 0.0
	for _, x := range v {
		top = max(top, x)
	}
	d = numfmt.F32ToF16(float32(min(top/63, maxF16)))
	unit := float64(numfmt.F16ToF32(d))
	for j, x := range v {
		s[j] = level(x/unit, 63)
	}
	return d, s
}

// fitSymmetric chooses d and s of a Q6_K block, and writes the levels to q.
func fitSymmetric(q *[256]uint8, x *[256]float32) (d uint16, s [16]int8) {
	var scale [16]float64
	widest := 0.0
	for j := range scale {
		scale[j] = fitScale((*[16]float32)(x[16*j:]))
		if math.Abs(scale[j]) > math.Abs(widest) {
			widest = scale[j]
		}
	}
	// The scale of largest magnitude becomes −128, the larger end of the range.
	d = numfmt.F32ToF16(float32(max(-maxF16, min(widest/-128, maxF16))))
	unit := float64(numfmt.F16ToF32(d))
	for j := range scale {
		s[j] = int8(level(scale[j]/unit+128, 255) ^ 128)
	}
	for i, v := range x {
		stored := numfmt.F16ToF32(d) * float32(s[i/16])
		q[i] = level(float64(v)/float64(stored)+32, 63)
	}
	return d, s
}

// fitScale returns the scale of x ≈ scale·q, q in −32…31.
func fitScale(x *[16]float32) float64 {
	widest := float64(largest(x[:]))
	if widest == 0 || math.IsNaN(widest) || math.IsInf(widest, 0) {
		return 0
	}
	scale, best := 0.0, 0.0
	for t := -9; t <= 9; t++ {
		step := widest / (-32 + float64(0.1*float64(t)))
		var xq, qq float64
		for _, v := range x {
			v := float64(v)
			k := float64(level(v/step+32, 63)) - 32
			a := math.Abs(v)
			xq += float64(a * v * k)
			qq += float64(a * k * k)
		}
		// With scale = xq/qq the error is a constant minus xq²/qq.
		if qq > 0 && xq*xq > best*qq {
			scale, best = xq/qq, xq*xq/qq
		}
	}
	return scale
}

// level rounds v to the nearest of 0…top; NaN becomes 0.
func level(v float64, top int) uint8 {
	if !(v > 0) {
		return 0
	}
	return uint8(math.RoundToEven(min(v, float64(top))))
}
