package numfmt

import (
	"encoding/binary"
	"math"
	"testing"
)

// quantize returns a row's integers, scales, sums and dequantized values.
func quantize(t *testing.T, x []float32) (q []int32, scale []float32, sum []int32, back []float32) {
	t.Helper()
	k := len(x)
	row := make([]byte, Q8x2Bytes(k)+8)
	for i := range row {
		row[i] = 0xa5
	}
	QuantizeQ8x2(row[:Q8x2Bytes(k)], x)
	for _, b := range row[Q8x2Bytes(k):] {
		if b != 0xa5 {
			t.Fatal("writes behind the row")
		}
	}
	for i := range k {
		hi, lo := int32(int8(row[i])), int32(int8(row[k+i]))
		if lo < -64 || lo > 63 {
			t.Errorf("lo is %d", lo)
		}
		q = append(q, 128*hi+lo)
	}
	for i := range k / 32 {
		scale = append(scale, math.Float32frombits(binary.LittleEndian.Uint32(row[2*k+4*i:])))
	}
	for i := range k / 16 {
		sum = append(sum, int32(binary.LittleEndian.Uint32(row[2*k+k/8+4*i:])))
	}
	back = make([]float32, k)
	DequantizeQ8x2(back, row)
	return q, scale, sum, back
}

func TestQ8x2(t *testing.T) {
	if Q8x2Bytes(32) != 76 || Q8x2Bytes(96) != 228 || Q8x2Bytes(0) != 0 {
		t.Error("a block of 32 takes 76 bytes")
	}
	for _, magnitude := range []float64{1, 1e4, 1e30, 1e-30, 3e38 / 4, 1e-33} {
		x := random(11, 96)
		for i := range x {
			x[i] = float32(float64(x[i]) / 4 * magnitude)
		}
		q, scale, sum, back := quantize(t, x)
		for i, v := range x {
			s := float64(scale[i/32])
			if q[i] < -16256 || q[i] > 16256 {
				t.Errorf("q is %d", q[i])
			}
			// Half a step of s/128, and the rounding of three float32 operations.
			if bound := s/256 + 4e-7*math.Abs(float64(v)); math.Abs(float64(back[i])-float64(v)) > bound {
				t.Errorf("%v comes back as %v, further than %v", v, back[i], bound)
			}
			near(t, "dequantized", back[i], s*float64(q[i])/128)
			amax := float32(0)
			for _, v := range x[i/32*32 : i/32*32+32] {
				amax = float32(math.Max(float64(amax), math.Abs(float64(v))))
			}
			if want := int32(math.RoundToEven(float64(v * (16256 / amax)))); q[i] != want {
				t.Errorf("%v gives q = %d, expected %d", v, q[i], want)
			}
		}
		for j := range sum {
			total := int32(0)
			for _, v := range q[16*j : 16*j+16] {
				total += v
			}
			if sum[j] != total {
				t.Errorf("sum %d is %d, expected %d", j, sum[j], total)
			}
		}
		for b := range scale {
			top := 0.0
			for _, v := range x[32*b : 32*b+32] {
				top = math.Max(top, math.Abs(float64(v)))
			}
			near(t, "scale", scale[b], top/127)
		}
	}
}

func TestQ8x2Extremes(t *testing.T) {
	x := make([]float32, 32)
	block := func(v ...float32) []float32 { clear(x); copy(x, v); return x }

	q, scale, _, _ := quantize(t, block(1, -1, 0.5, 1.0/16256, 0.49/16256, 1.5/16256, 2.5/16256))
	for i, want := range []int32{16256, -16256, 8128, 1, 0, 2, 2} { // halves go to the even neighbor
		if q[i] != want {
			t.Errorf("q[%d] is %d, expected %d", i, q[i], want)
		}
	}
	near(t, "scale", scale[0], 1.0/127)

	for name, x := range map[string][]float32{
		"zeros":          block(),
		"the smallest":   block(math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32),
		"subnormals":     block(1e-40, -1e-39),
		"too small by 2": block(2e-35),
	} {
		q, scale, sum, back := quantize(t, append([]float32(nil), x...))
		if scale[0] != 0 || sum[0] != 0 || q[0] != 0 || back[0] != 0 {
			t.Errorf("%s: q %d scale %v sum %d, expected zeros", name, q[0], scale[0], sum[0])
		}
	}

	for _, bad := range []float32{nan, inf, -inf} {
		two := append(block(1, bad), make([]float32, 32)...)
		two[40] = 1
		_, scale, sum, back := quantize(t, two)
		if scale[0] == scale[0] || back[0] == back[0] || back[31] == back[31] || sum[0] != 0 {
			t.Errorf("%v must spread over its block: scale %v, first %v", bad, scale[0], back[0])
		}
		if back[40] != 1 || back[41] != 0 {
			t.Errorf("%v spreads into the next block: %v", bad, back[40])
		}
	}

	_, _, _, back := quantize(t, block(3.4e38, -3.4e38))
	for i, want := range []float64{3.4e38, -3.4e38} {
		if math.Abs(float64(back[i])/want-1) > 1e-6 {
			t.Errorf("%v comes back as %v", want, back[i])
		}
	}
	_, _, _, back = quantize(t, nil)
	if len(back) != 0 {
		t.Error("an empty row")
	}
}

func BenchmarkQuantizeQ8x2(b *testing.B) {
	x := random(12, 4096)
	row := make([]byte, Q8x2Bytes(len(x)))
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		QuantizeQ8x2(row, x)
	}
}
