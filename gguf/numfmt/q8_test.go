package numfmt

import (
	"encoding/binary"
	"math"
	"testing"
)

// TestQ8 compares rows with their definition in float64: q, scales, sums, and dequantized values.
func TestQ8(t *testing.T) {
	if Q8Bytes(32) != 44 || Q8Bytes(96) != 132 || Q8Bytes(0) != 0 {
		t.Error("a block of 32 takes 44 bytes")
	}
	for _, magnitude := range []float64{1, 1e4, 1e30, 1e-30, 3e38 / 4, 1e-35} {
		const k = 96
		x := random(13, k)
		for i := range x {
			x[i] = float32(float64(x[i]) / 4 * magnitude)
		}
		row := make([]byte, Q8Bytes(k)+8)
		for i := range row {
			row[i] = 0xa5
		}
		QuantizeQ8(row[:Q8Bytes(k)], x)
		for _, b := range row[Q8Bytes(k):] {
			if b != 0xa5 {
				t.Fatal("writes behind the row")
			}
		}
		back, sums := make([]float32, k), [k / 16]int32{}
		DequantizeQ8(back, row)
		for i, v := range x {
			amax := float32(0)
			for _, v := range x[i/32*32 : i/32*32+32] {
				amax = max(amax, float32(math.Abs(float64(v))))
			}
			q := int32(int8(row[i]))
			if want := int32(math.RoundToEven(float64(v * (127 / amax)))); q != want || q < -127 || q > 127 {
				t.Errorf("%v of %v gives q = %d, expected %d", v, amax, q, want)
			}
			s := math.Float32frombits(binary.LittleEndian.Uint32(row[k+i/32*4:]))
			near(t, "scale", s, float64(amax)/127)
			near(t, "dequantized", back[i], float64(s)*float64(q))
			if bound := float64(s)/2 + 4e-7*math.Abs(float64(v)); math.Abs(float64(back[i])-float64(v)) > bound {
				t.Errorf("%v comes back as %v, further than %v", v, back[i], bound)
			}
			sums[i/16] += q
		}
		for j, want := range sums {
			if got := int32(binary.LittleEndian.Uint32(row[k+k/8+4*j:])); got != want {
				t.Errorf("sum %d is %d, expected %d", j, got, want)
			}
		}
	}
}

// TestQ8Extremes checks ties, blocks that are zero or too small for a scale, and numbers that are not
// finite, which affect their whole block and no other.
func TestQ8Extremes(t *testing.T) {
	row, back := make([]byte, Q8Bytes(64)), make([]float32, 64)
	quantize := func(v ...float32) {
		x := make([]float32, 64)
		copy(x, v)
		x[40] = 1 // in the next block
		QuantizeQ8(row, x)
		DequantizeQ8(back, row)
		if back[40] != 1 || back[41] != 0 {
			t.Errorf("%v spreads into the next block: %v", v, back[40])
		}
	}
	quantize(127, -127, 0.5, 1.5, 2.5, -0.5, -1.5, 0.49) // halves go to the even neighbor
	for i, want := range []int8{127, -127, 0, 2, 2, 0, -2, 0} {
		if got := int8(row[i]); got != want {
			t.Errorf("q[%d] is %d, expected %d", i, got, want)
		}
	}
	for _, small := range []float32{0, math.SmallestNonzeroFloat32, 1e-40, 3e-37} {
		quantize(small, -small)
		if row[0] != 0 || back[0] != 0 || math.Float32frombits(binary.LittleEndian.Uint32(row[64:])) != 0 {
			t.Errorf("%v gives q = %d, expected a block of zeros", small, row[0])
		}
	}
	for _, bad := range []float32{nan, inf, -inf} {
		quantize(1, bad)
		if back[0] == back[0] || back[31] == back[31] || row[0] != 0 || binary.LittleEndian.Uint32(row[64+8:]) != 0 {
			t.Errorf("%v must spread over its block: first %v", bad, back[0])
		}
	}
	quantize(3.4e38, -3.4e38)
	for i, want := range []float64{3.4e38, -3.4e38} {
		if math.Abs(float64(back[i])/want-1) > 1e-6 {
			t.Errorf("%v comes back as %v", want, back[i])
		}
	}
	QuantizeQ8(nil, nil)
	DequantizeQ8(nil, nil)
}
