package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	names := map[string]bool{}
	for i := range infos {
		in := &infos[i]
		if in.Type != Type(i) {
			t.Errorf("row %d has id %d", i, in.Type)
		}
		if names[strings.ToLower(in.Name)] {
			t.Errorf("two rows are called %s", in.Name)
		}
		names[strings.ToLower(in.Name)] = true
		if in.Removed != (in.BlockLen == 0) || in.Removed != (in.BlockBytes == 0) {
			t.Errorf("%s: removed %v with blocks of %d elements, %d bytes", in.Name, in.Removed, in.BlockLen, in.BlockBytes)
		}
		for _, s := range in.Scales {
			if s.At+s.Bytes > in.BlockBytes {
				t.Errorf("%s: scale at byte %d of %d", in.Name, s.At, in.BlockBytes)
			}
		}
		if (in.BlockLen > 1) != (in.Scales != nil) {
			t.Errorf("%s: %d scales in blocks of %d", in.Name, len(in.Scales), in.BlockLen)
		}
		if got, ok := ByName(strings.ToLower(in.Name)); !ok || got != in {
			t.Errorf("ByName(%q) = %v, %v", in.Name, got, ok)
		}
		if got, ok := Lookup(in.Type); !ok || got != in {
			t.Errorf("Lookup(%d) = %v, %v", i, got, ok)
		}
	}
	removed := slices.DeleteFunc(slices.Clone(infos[:]), func(in Info) bool { return !in.Removed })
	if len(removed) != 8 {
		t.Errorf("%d types are removed, the format removed 8", len(removed))
	}
	for _, typ := range []Type{Type(len(infos)), 1 << 31, math.MaxUint32} {
		if in, ok := Lookup(typ); ok {
			t.Errorf("Lookup(%d) = %v", typ, in)
		}
		if RowBytes(typ, 256) != 0 {
			t.Errorf("RowBytes(%d, 256) = %d", typ, RowBytes(typ, 256))
		}
	}
	if _, ok := ByName(""); ok {
		t.Error("a type has no name")
	}
	if s := Type(77).String(); s != "type 77" {
		t.Errorf("type 77 is %q", s)
	}
}

func TestRowBytes(t *testing.T) {
	for _, c := range []struct {
		typ  Type
		n    int64
		want int64
	}{
		{F32, 0, 0}, {F32, 3, 12}, {Q4_0, 32, 18}, {Q8_0, 96, 102}, {Q4_K, 768, 432}, {Q6_K, 256, 210}, {4, 32, 0},
	} {
		if got := RowBytes(c.typ, c.n); got != c.want {
			t.Errorf("RowBytes(%s, %d) = %d, want %d", c.typ, c.n, got, c.want)
		}
	}
}

func TestDequantizeWide(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		typ  Type
		src  []byte
		want []float32
	}{
		{F64, nil, nil},
		{F64, []byte{0, 0, 0, 0, 0, 0, 0xf8, 0xbf}, []float32{-1.5}},
		{F64, []byte{0, 0, 0, 0, 0, 0, 0, 0x80}, []float32{float32(math.Copysign(0, -1))}},
		{F64, []byte{0, 0, 0, 0x10, 0, 0, 0xf0, 0x3f}, []float32{1}}, // 1 + 2^-24, a tie, to even
		{F64, []byte{1, 0, 0, 0x10, 0, 0, 0xf0, 0x3f}, []float32{1 + 0x1p-23}},
		{F64, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, []float32{inf}},
		{F64, []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x7f}, []float32{float32(math.NaN())}},
		{F64, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xef, 0x7f}, []float32{inf}}, // beyond float32
		{I8, []byte{0, 127, 0x80, 0xff}, []float32{0, 127, -128, -1}},
		{I16, []byte{0xff, 0x7f, 0, 0x80, 0xfe, 0xff}, []float32{32767, -32768, -2}},
		{I32, []byte{0, 0, 0, 0x80, 1, 0, 0, 1, 3, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}, []float32{-0x1p31, 0x1p24, 0x1p24 + 4, -1}},
		{I64, []byte{0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 5, 0, 0, 0, 1, 0, 0, 0}, []float32{-0x1p63, 0x1p63, 0x1p32}},
	} {
		got := make([]float32, len(c.want))
		infos[c.typ].Dequantize(got, c.src)
		if !slices.EqualFunc(got, c.want, sameFloat) {
			t.Errorf("%s % x is %v, want %v", c.typ, c.src, got, c.want)
		}
	}
}

// TestWholeBlocksOnly calls every conversion with no block, and with an odd
// number of blocks between guard values, which must not change.
func TestWholeBlocksOnly(t *testing.T) {
	for i := range infos {
		in := &infos[i]
		const blocks = 3
		if in.Dequantize != nil {
			in.Dequantize(nil, nil)
			dst := slices.Repeat([]float32{-7}, blocks*in.BlockLen+2)
			n := len(dst) - 1
			in.Dequantize(dst[1:n:n], make([]byte, blocks*in.BlockBytes))
			if dst[0] != -7 || dst[n] != -7 || slices.Contains(dst[1:n], -7) {
				t.Errorf("%s: dequantized %v", in.Name, dst)
			}
		}
		if in.Quantize != nil {
			in.Quantize(nil, nil)
			dst := bytes.Repeat([]byte{0xa5}, blocks*in.BlockBytes+2)
			n := len(dst) - 1
			src := slices.Repeat([]float32{0}, blocks*in.BlockLen)
			in.Quantize(dst[1:n:n], src)
			if dst[0] != 0xa5 || dst[n] != 0xa5 {
				t.Errorf("%s: quantized beyond its destination", in.Name)
			}
			back := slices.Repeat([]float32{-7}, len(src))
			in.Dequantize(back, dst[1:n])
			if slices.ContainsFunc(back, func(x float32) bool { return x != 0 }) {
				t.Errorf("%s: zeros came back as %v", in.Name, back)
			}
		}
	}
}

// TestQuantizeError bounds the relative error, √(Σ(x−y)²/Σx²), on normal and on uniform values. The
// bounds are 2 % above the measured errors. Rounding to the full range of each sub-block, without a
// search, exceeds them.
func TestQuantizeError(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	normal, uniform := make([]float32, 1<<16), make([]float32, 1<<16)
	for i := range normal {
		normal[i] = float32(r.NormFloat64() / 30)
		uniform[i] = r.Float32() - 0.5
	}
	for _, c := range []struct {
		typ                       Type
		boundNormal, boundUniform float64
	}{
		{Q4_0, 0.0863, 0.0652},
		{Q4_1, 0.0783, 0.061},
		{Q5_0, 0.0429, 0.0313},
		{Q5_1, 0.0382, 0.0297},
		{Q8_0, 0.00537, 0.00378},
		{Q4_K, 0.0722, 0.0557},
		{Q5_K, 0.0362, 0.0278},
		{Q6_K, 0.0176, 0.0132},
	} {
		for _, d := range []struct {
			name  string
			x     []float32
			bound float64
		}{{"normal", normal, c.boundNormal}, {"uniform", uniform, c.boundUniform}} {
			got := roundTripError(c.typ, d.x)
			t.Logf("%s: relative error of %s values %.5f", c.typ, d.name, got)
			if !(got <= d.bound) {
				t.Errorf("%s: relative error of %s values %.5f, bound %.5f", c.typ, d.name, got, d.bound)
			}
		}
	}
}

func roundTripError(typ Type, x []float32) float64 {
	in := &infos[typ]
	b, y := make([]byte, RowBytes(typ, int64(len(x)))), make([]float32, len(x))
	in.Quantize(b, x)
	in.Dequantize(y, b)
	var e, s float64
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		e += d * d
		s += float64(x[i]) * float64(x[i])
	}
	return math.Sqrt(e / s)
}

// TestQuantizeHard quantizes values that are hard for the search of the K-quants.
// Finite values must stay finite, with an error of at most a step of the widest range.
func TestQuantizeHard(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		name string
		at   func(i int) float64
	}{
		{"constant", func(int) float64 { return 0.7 }},
		{"negative constant", func(int) float64 { return -0.7 }},
		{"one spike", func(i int) float64 { return float64(i / 255) }},
		{"one dip", func(i int) float64 { return -float64(i / 255) }},
		{"all positive", func(i int) float64 { return 5 + math.Sin(float64(i)) }},
		{"all negative", func(i int) float64 { return -5 + math.Sin(float64(i)) }},
		{"empty sub-blocks", func(i int) float64 { return math.Sin(float64(i)) * float64(i/32%2) }},
		{"tiny", func(i int) float64 { return math.Sin(float64(i)) * 1e-30 }},
		{"subnormal", func(i int) float64 { return math.Sin(float64(i)) * 1e-40 }},
		{"large", func(i int) float64 { return math.Sin(float64(i)) * 4e6 }},
		{"beyond the largest scale", func(i int) float64 { return math.Sin(float64(i)) * 1e30 }},
		{"widest float32", func(i int) float64 { return math.MaxFloat32 * float64(1-i%2*2) }},
		{"NaN", func(i int) float64 { return []float64{1, nan}[i/255] }},
		{"infinite", func(i int) float64 { return []float64{1, inf, -inf}[i/100] }},
	} {
		var x, y [256]float32
		widest := 0.0
		for i := range x {
			x[i] = float32(c.at(i))
			widest = max(widest, math.Abs(float64(x[i])))
		}
		for _, k := range []struct {
			typ  Type
			step float64 // relative to the largest value, for a range of both signs
		}{{Q4_K, 2. / 15}, {Q5_K, 2. / 31}, {Q6_K, 1. / 31}} {
			in := &infos[k.typ]
			b := make([]byte, in.BlockBytes)
			in.Quantize(b, x[:])
			in.Dequantize(y[:], b)
			for i, v := range y {
				if v != v || math.IsInf(float64(v), 0) {
					t.Errorf("%s of %s: element %d, %v, came back as %v", k.typ, c.name, i, x[i], v)
					break
				}
				// Outside the range of float16 scales the error has no bound.
				if widest > 1e-3 && widest < 4.1e6 && math.Abs(float64(v-x[i])) > k.step*widest {
					t.Errorf("%s of %s: element %d, %v, came back as %v", k.typ, c.name, i, x[i], v)
					break
				}
			}
		}
	}
}

func BenchmarkDequantize(b *testing.B) {
	for _, typ := range pythonTypes() {
		b.Run(typ.String(), func(b *testing.B) {
			in := &infos[typ]
			src := randomBlocks(in, 4096/in.BlockLen)
			r := rand.New(rand.NewPCG(9, 9))
			for i := range 4096 / in.BlockLen {
				for _, s := range in.Scales {
					ordinary(r, s, src[i*in.BlockBytes+s.At:][:s.Bytes])
				}
			}
			dst := make([]float32, 4096)
			b.SetBytes(int64(4 * len(dst)))
			for b.Loop() {
				in.Dequantize(dst, src)
			}
		})
	}
}

func TestDequantizable(t *testing.T) {
	types := Dequantizable()
	for _, typ := range []Type{F32, Q4_K, I64, NVFP4} {
		if !slices.Contains(types, typ) {
			t.Errorf("%s is not in %v", typ, types)
		}
	}
	for _, typ := range []Type{4, Q1_0, F8E4M3} { // removed, without a decoder, not of GGUF
		if slices.Contains(types, typ) {
			t.Errorf("%s is in %v", typ, types)
		}
	}
	if !slices.IsSorted(types) || len(slices.Compact(types)) != len(Dequantizable()) {
		t.Errorf("not ascending: %v", types)
	}
}
