package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pesti/gguf/numfmt"
	"pesti/gguf/quant"
)

// value returns element e of a block with the given parts. It is written from the comment of Layout.
func value(l *Layout, parts [][]byte, e int) float32 {
	b := e / 32 // of 32 elements
	nibble := func() int32 {
		q := parts[0][16*b+e%16]
		if e%32 < 16 {
			return int32(q & 15)
		}
		return int32(q >> 4)
	}
	bit := func() int32 { return int32(le.Uint32(parts[1][4*b:])>>(8*(e%4)+e%32/4)) & 1 << 4 }
	half := func(part, at int) float32 { return numfmt.F16ToF32(le.Uint16(parts[part][at:])) }
	scaled := func(part int, q int32) float32 {
		d, s := half(part, 0), parts[part+1][2*b:]
		return float32(float32(d*float32(s[0]))*float32(q)) - float32(half(part, 2)*float32(s[1]))
	}
	switch l.Type {
	case "q4_0":
		return half(1, 0) * float32(nibble()-8)
	case "q4_1":
		return float32(half(1, 0)*float32(nibble())) + half(1, 2)
	case "q5_0":
		return half(2, 0) * float32(nibble()+bit()-16)
	case "q5_1":
		return float32(half(2, 0)*float32(nibble()+bit())) + half(2, 2)
	case "q8_0":
		return half(2, 0) * float32(int8(parts[e/16][e%16]))
	case "q4_k":
		return scaled(1, nibble())
	case "q5_k":
		return scaled(2, nibble()+bit())
	case "q6_k":
		word := le.Uint32(parts[1][8*b+e%32/16*4:])
		q := nibble() + int32(word>>(8*(e%4)+2*(e/4%4)))&3<<4
		return float32(half(3, 0)*float32(int8(parts[2][e/16]))) * float32(q-32)
	case "f32":
		return math.Float32frombits(le.Uint32(parts[e/4][e%4*4:]))
	case "f16":
		return half(e/8, e%8*2)
	case "bf16":
		return numfmt.BF16ToF32(le.Uint16(parts[e/8][e%8*2:]))
	case "f8_e4m3":
		return numfmt.E4M3ToF32(parts[e/16][e%16])
	}
	return float32(math.NaN())
}

// randomWeight returns n rows of k elements in the layout of a file. Most scales are ordinary numbers.
func randomWeight(rng *rand.Rand, info *quant.Info, n, k int) []byte {
	w := make([]byte, n*k/info.BlockLen*info.BlockBytes)
	for i := range w {
		w[i] = byte(rng.Uint32())
	}
	if info.Quantize != nil && info.BlockLen == 1 {
		x := make([]float32, n*k)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		info.Quantize(w, x)
		return w
	}
	for at := 0; at < len(w) && info.BlockLen > 1; at += info.BlockBytes {
		offsets := map[quant.Type][]int{quant.Q6_K: {208}, quant.Q4_K: {0, 2}, quant.Q5_K: {0, 2}, quant.Q4_1: {0, 2}, quant.Q5_1: {0, 2}}[info.Type]
		if offsets == nil {
			offsets = []int{0}
		}
		for _, o := range offsets {
			le.PutUint16(w[at+o:], numfmt.F32ToF16(float32(rng.NormFloat64())*0.02))
		}
	}
	return w
}

// TestPack packs random blocks, in two parts, and checks that every element has the value that it has in the file.
func TestPack(t *testing.T) {
	for _, l := range Layouts() {
		for _, shape := range [][2]int{{1, l.Block}, {3, 2 * l.Block}, {5, 3 * l.Block}} {
			n, k := shape[0], shape[1]
			t.Run(fmt.Sprintf("%s %d×%d", l.Type, n, k), func(t *testing.T) {
				info, bytes, err := l.file()
				if err != nil {
					t.Fatal(err)
				}
				src := randomWeight(rand.New(rand.NewPCG(3, uint64(n))), info, n, k)
				dst := make([]byte, l.Size(n, k))
				for _, part := range [][2]int{{n / 2, n}, {0, n / 2}} {
					if err := l.Pack(dst, src, n, k, part[0], part[1]); err != nil {
						t.Fatal(err)
					}
				}
				blocks := n * k / l.Block
				want, parts := make([]float32, l.Block), make([][]byte, len(l.sections))
				for b := range blocks {
					info.Dequantize(want, src[b*bytes:])
					l.parts(parts, dst, b, blocks)
					for e, v := range want {
						if got := value(&l, parts, e); math.Float32bits(got) != math.Float32bits(v) {
							t.Fatalf("block %d element %d is %v, in the file %v", b, e, got, v)
						}
					}
				}
			})
		}
	}
}

// TestPackRefuses checks that shapes which do not fit are errors.
func TestPackRefuses(t *testing.T) {
	l, _ := LookupLayout("q4_k")
	src, dst := make([]byte, 2*144), make([]byte, l.Size(2, 256))
	if err := l.Pack(dst, src, 2, 256, 0, 2); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ n, k, from, to, src, dst int }{
		{2, 288, 0, 2, len(src), len(dst)},
		{2, 256, 0, 3, len(src), len(dst)},
		{2, 256, -1, 2, len(src), len(dst)},
		{2, 256, 0, 2, len(src) - 1, len(dst)},
		{2, 256, 0, 2, len(src), len(dst) - 1},
	} {
		if err := l.Pack(dst[:c.dst], src[:c.src], c.n, c.k, c.from, c.to); err == nil {
			t.Errorf("%+v was packed", c)
		}
	}
	if _, ok := LookupLayout("iq4_xs"); ok {
		t.Error("a type without a layout has one")
	}
}

// TestLayouts checks that sections need no padding between them: each begins at the alignment of its widest load.
func TestLayouts(t *testing.T) {
	for i, l := range Layouts() {
		if l.Code != uint32(i) {
			t.Errorf("%s has code %d in row %d", l.Type, l.Code, i)
		}
		aligned := make([]int, len(l.sections))
		for s, bytes := range l.sections {
			for aligned[s] = 16; bytes%aligned[s] != 0; aligned[s] /= 2 {
			}
		}
		if !slices.IsSortedFunc(aligned, func(a, b int) int { return b - a }) && l.Block == 32 {
			t.Errorf("%s: sections of %v bytes, aligned as %v", l.Type, l.sections, aligned)
		}
	}
}
