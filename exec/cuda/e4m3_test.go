package cuda_test

import (
	"math"
	"testing"

	"pesti/exec/cuda"
	"pesti/exec/cuda/kernels"
	"pesti/gguf/numfmt"
)

// allE4M3 returns the bytes and the values of all E4M3 numbers.
func allE4M3() (codes []byte, values []float32) {
	for i := range 256 {
		codes, values = append(codes, byte(i)), append(values, numfmt.E4M3ToF32(byte(i)))
	}
	return codes, values
}

// eachSet runs a test on the modules of every target: GPUs before sm_89 have no instructions for FP8.
func eachSet(t *testing.T, test func(b *bench)) {
	for _, s := range kernels.Sets() {
		t.Run(s.ISA, func(t *testing.T) { test(newBench(t, s.ISA)) })
	}
}

// TestE4M3Weights checks that every float32 product decodes all FP8 numbers, including NaN and
// subnormals: each is the only nonzero element of a row, and x is all ones.
func TestE4M3Weights(t *testing.T) {
	codes, want := allE4M3()
	w := &matrix{kind: "f8_e4m3", n: len(codes), k: 32, file: make([]byte, 32*len(codes))}
	for i, c := range codes {
		w.file[32*i+i%32] = c
	}
	eachSet(t, func(b *bench) {
		for _, m := range []int{1, 2, 4, 65} {
			x := make([]float32, 32*m)
			for i := range x {
				x[i] = 1
			}
			p := cuda.Product{X: b.put(x), K: 32, M: uint32(m)}
			for _, tiles := range []bool{false, true} {
				p.Ops[0] = cuda.Operand{Weight: b.weight(w), Out: b.alloc(4 * m * w.n)}
				if tiles {
					b.launch(p.Tiles(true))
				} else {
					b.launch(p.Call(b.dev.Properties(), true))
				}
				for i, v := range get[float32](b, p.Ops[0].Out, m*w.n) {
					if c := want[i%w.n]; v != c && (v == v || c == c) {
						b.t.Errorf("m=%d tiles=%v: %#02x is %v, expected %v", m, tiles, codes[i%w.n], v, c)
					}
				}
			}
		}
	})
}

// e4m3Cases are numbers of every exponent, the midpoints between FP8 numbers with their neighbors, and numbers outside
// the range of FP8.
func e4m3Cases() []float32 {
	var x []float32
	for code := range byte(0x7e) {
		middle := (numfmt.E4M3ToF32(code) + numfmt.E4M3ToF32(code+1)) / 2
		x = append(x, numfmt.E4M3ToF32(code), middle, math.Nextafter32(middle, 0), math.Nextafter32(middle, 1e9))
	}
	for bits := uint32(1); bits < 0x7f800000; bits += 1 << 21 {
		x = append(x, math.Float32frombits(bits))
	}
	x = append(x, 448, 449, 463, 464, 465, 480, 1e30, math.MaxFloat32, float32(math.Inf(1)), float32(math.NaN()), 0)
	for _, v := range x {
		x = append(x, -v)
	}
	for len(x)%256 != 0 {
		x = append(x, 0)
	}
	return x
}

// TestE4M3Cache checks that an FP8 cache holds the bytes of the CPU's rounding, and that both
// attention kernels decode every number: the result of a token that sees only itself is its value.
func TestE4M3Cache(t *testing.T) {
	const d = 256
	x := e4m3Cases()
	heads := uint32(len(x) / d)
	codes, values := allE4M3()
	eachSet(t, func(b *bench) {
		nothing := b.put(make([]float32, len(x)))
		size := 16 * len(x) // a page of 16 positions
		a := cuda.Attention{
			Q: nothing, K: nothing, V: b.put(x), Pos: b.put([]int32{0}), Seq: b.put([]int32{0}), Pages: b.put([]int32{0}),
			KCache: b.put(make([]byte, size)), VCache: b.put(make([]byte, size)), Arrived: b.put(make([]uint32, heads)),
			Heads: heads, KVHeads: heads, HeadDim: d, Positions: 16, SeqPages: 1, M: 1, Scale: 1,
		}
		a.Work = b.alloc(int(a.AttentionWork(1)))
		b.launch(a.StoreKV("f8_e4m3"))
		cache := get[byte](b, a.VCache, size)
		for i, v := range x {
			got, want := cache[i/d*16*d+i%d], numfmt.F32ToE4M3(v)
			if v != v {
				got, want = got&0x7f, want&0x7f // a NaN may have any sign
			}
			if got != want {
				b.t.Errorf("%v is stored as %#02x, expected %#02x", v, got, want)
			}
		}

		for h := range int(heads) {
			copy(cache[h*16*d:], codes)
		}
		a.VCache, a.Stored = b.put(cache), 1
		for what, call := range map[string]func() (cuda.Call, error){
			"attention": func() (cuda.Call, error) { return a.Call(b.dev.Properties(), "f8_e4m3") },
			"prefill":   func() (cuda.Call, error) { return a.Prefill(b.dev.Properties(), "f8_e4m3") },
		} {
			a.Out = b.alloc(4 * len(x))
			b.launch(call())
			for i, v := range get[float32](b, a.Out, len(x)) {
				if want := values[i%d]; v != want && (v == v || want == want) {
					b.t.Errorf("%s: %#02x is %v, expected %v", what, codes[i%d], v, want)
				}
			}
		}
	})
}
