package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pesti/exec/cpu/isa"
	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/ops/ref"
)

// runnableVectors returns the sets of inner loops that this machine supports.
func runnableVectors() []*vectors {
	return slices.DeleteFunc(slices.Clone(vectorSets), func(v *vectors) bool {
		_, err := isa.UpTo(v.isa)
		return err != nil
	})
}

// eachSet runs a test for each set of inner loops that this machine supports.
func eachSet(t *testing.T, test func(t *testing.T, v *vectors)) {
	for _, v := range runnableVectors() {
		t.Run(v.isa, func(t *testing.T) { test(t, v) })
	}
}

// guarded returns n NaN in guarded memory that is aligned to 4 bytes only.
func guarded(n int) ([]float32, *memory) {
	m := newMemory(4*n + 4)
	for i := range m.data() {
		m.data()[i] = 0xff
	}
	return m.f32()[1:], m
}

// untouched fails the test if guard bytes were written.
func untouched(t *testing.T, what string, ms ...*memory) {
	t.Helper()
	for _, m := range ms {
		if !m.intact() || math.Float32bits(m.f32()[0]) != 0xffffffff {
			t.Fatalf("%s wrote around its output", what)
		}
	}
}

func TestVectorsOf(t *testing.T) {
	for _, v := range vectorSets {
		if got := (&binder{isas: []string{"portable", v.isa}}).vectors(); got != v {
			t.Errorf("with %s allowed, the inner loops for %s are bound", v.isa, got.isa)
		}
	}
	if got := (&binder{isas: []string{"portable"}}).vectors(); got != &portable {
		t.Errorf("with only portable allowed, the inner loops for %s are bound", got.isa)
	}
}

// gateFunctions has the gates in float64, with up = 1.
var gateFunctions = map[string]func(x float64) float64{
	"silu": func(x float64) float64 { return x / (1 + math.Exp(-x)) },
	"gelu_tanh": func(x float64) float64 { // x/2·(1+tanh u) without its loss of digits below 0
		return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	},
	"gelu_erf": func(x float64) float64 { return 0.5 * x * math.Erfc(-x/math.Sqrt2) },
}

// TestGates compares each gate with float64 at 1.3 million float32 up to 100 and at the ends of the
// range. The bound is 3 units in the last place, and 3 times the smallest number for subnormal results.
// At infinity a gate has its limit, except that the reference gives NaN at −Inf.
func TestGates(t *testing.T) {
	const step = 1777 // between the bits of one number and the next
	eachSet(t, func(t *testing.T, v *vectors) {
		for name, want := range gateFunctions {
			g := v.gates[name]
			lost := 0.0 // of x, where 1+tanh is not exact in float64
			if v == &portable {
				lost = 0x1p-52
			}
			const n = 1024
			x, y, ones := make([]float32, 0, n), make([]float32, n), make([]float32, n)
			for i := range ones {
				ones[i] = 1
			}
			worst, where := 0.0, float32(0)
			check := func() {
				g(y[:len(x)], x, ones[:len(x)])
				for i, x := range x {
					w := want(float64(x))
					ulp := math.Max(math.Abs(w)*0x1p-23, math.SmallestNonzeroFloat32)
					off := max(0, math.Abs(float64(y[i])-w)-lost*math.Abs(float64(x))) / ulp
					if !(off <= worst) {
						worst, where = off, x
					}
				}
				x = x[:0]
			}
			for bits := uint32(0); bits <= math.Float32bits(100); bits += step {
				for _, sign := range []uint32{0, 1 << 31} {
					if x = append(x, math.Float32frombits(sign|bits)); len(x) == n {
						check()
					}
				}
			}
			x = append(x, 1e30, -1e30, math.MaxFloat32, -math.MaxFloat32, 0x1p-149, -0x1p-149)
			check()
			t.Logf("%s: at most %.2f ulp, at %v", name, worst, where)
			if !(worst <= 3) {
				t.Errorf("%s(%v) is %.2f units in the last place off, expected at most 3", name, where, worst)
			}
			inf, nan := float32(math.Inf(1)), float32(math.NaN())
			x = append(x, inf, nan, -nan, -inf, 0, float32(math.Copysign(0, -1)))
			g(y[:len(x)], x, ones[:len(x)])
			if y[0] != inf || y[1] == y[1] || y[2] == y[2] || y[3] > 0 || math.Float32bits(y[4]) != 0 || math.Float32bits(y[5]) != 1<<31 {
				t.Errorf("%s of %v is %v, expected +Inf NaN NaN, 0 or NaN, 0, −0", name, x, y[:len(x)])
			}
		}
	})
}

// TestGateTails checks that a gate of any length computes each element as it does alone, times up, also
// in place, and writes nothing else.
func TestGateTails(t *testing.T) {
	eachSet(t, func(t *testing.T, v *vectors) {
		rng := rand.New(rand.NewPCG(31, 32))
		for name, g := range v.gates {
			for n := range 40 {
				x, up := randoms(rng, n, 4), randoms(rng, n, 4)
				want := make([]float32, n)
				for i := range n {
					g(want[i:i+1], x[i:i+1], up[i:i+1])
				}
				got, mem := guarded(n)
				g(got, x, up)
				untouched(t, name, mem)
				if !sameBits(got, want) {
					t.Fatalf("%s of %d elements is %v, expected %v", name, n, got, want)
				}
				if g(x, x, up); !sameBits(x, want) {
					t.Fatalf("%s of %d elements in place is %v, expected %v", name, n, x, want)
				}
			}
		}
	})
}

// numbers returns n float32 of all magnitudes, including special values.
func numbers(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch rng.IntN(12) {
		case 0:
			x[i] = 0
		case 1:
			x[i] = math.Float32frombits(rng.Uint32() & 0x807fffff) // subnormal
		case 2:
			x[i] = float32(rng.NormFloat64() * 1e18)
		default:
			x[i] = float32(rng.NormFloat64())
		}
	}
	return x
}

// TestNormVectors checks that each set gives the bits of the portable norm, also in place.
func TestNormVectors(t *testing.T) {
	eachSet(t, func(t *testing.T, v *vectors) {
		rng := rand.New(rand.NewPCG(33, 34))
		for n := range 70 {
			x, d, w := numbers(rng, n), numbers(rng, n), numbers(rng, n)
			if got, want := v.sumSquares(x), portableSumSquares(x); got != want {
				t.Fatalf("sum of %d squares is %v, expected %v", n, got, want)
			}
			want, wantAdd := make([]float32, n), make([]float32, n)
			portableNormalize(want, x, w, 0.37)
			portableNormalizeAdd(wantAdd, x, d, w, 0.37)
			got, mem := guarded(n)
			gotAdd, memAdd := guarded(n)
			v.normalize(got, x, w, 0.37)
			v.normalizeAdd(gotAdd, x, d, w, 0.37)
			untouched(t, "a norm", mem, memAdd)
			if !sameBits(got, want) || !sameBits(gotAdd, wantAdd) {
				t.Fatalf("norm of %d elements is %v and %v, expected %v and %v", n, got, gotAdd, want, wantAdd)
			}
			y := slices.Clone(x)
			v.normalizeAdd(y, y, d, w, 0.37)
			v.normalize(x, x, w, 0.37)
			if !sameBits(x, want) || !sameBits(y, wantAdd) {
				t.Fatalf("norm of %d elements in place differs", n)
			}
		}
	})
}

// TestSines compares the sines of positions up to a million, and of angles at and next to multiples of
// π/4, with float64: they must be the nearest float32, or next to it if it is a close case. A sine does
// not depend on the number of sines in a call, and nothing is written beyond them.
func TestSines(t *testing.T) {
	eachSet(t, func(t *testing.T, v *vectors) {
		check := func(cos, sin, speed []float64, pos, magnitude float64) {
			n := len(speed)
			gotCos, cosMem := guarded(n)
			gotSin, sinMem := guarded(n)
			v.sines(gotCos, gotSin, speed, pos, magnitude)
			untouched(t, "sines", cosMem, sinMem)
			for i := range n {
				for _, s := range []struct {
					got  float32
					want float64
				}{{gotCos[i], cos[i]}, {gotSin[i], sin[i]}} {
					ulp := math.Abs(s.want) * 0x1p-23
					if !(math.Abs(float64(s.got)-s.want) <= 0.5001*ulp+1e-16) {
						t.Fatalf("position %v at speed %v: %v, expected %v", pos, speed[i], s.got, s.want)
					}
				}
			}
		}
		rng := rand.New(rand.NewPCG(53, 54))
		for n := range 70 {
			speed, cos, sin := make([]float64, n), make([]float64, n), make([]float64, n)
			for range 40 {
				pos, magnitude := float64(rng.IntN(1<<rng.IntN(21))), 1+float64(rng.IntN(2))/7
				for i := range speed {
					speed[i] = math.Pow(pick64(rng, 1e4, 1e6), -float64(i)/float64(n))
					if rng.IntN(4) == 0 { // at, or next to, a multiple of π/4
						speed[i] = float64(rng.IntN(1<<rng.IntN(21))) * (math.Pi / 4) / max(pos, 1)
					}
					s, c := math.Sincos(pos * speed[i])
					cos[i], sin[i] = c*magnitude, s*magnitude
				}
				check(cos, sin, speed, pos, magnitude)
			}
		}
	})
}

func pick64(rng *rand.Rand, a, b float64) float64 {
	if rng.IntN(2) == 0 {
		return a
	}
	return b
}

// TestRotations checks that each set rotates pairs with the bits of the portable loops.
func TestRotations(t *testing.T) {
	eachSet(t, func(t *testing.T, v *vectors) {
		rng := rand.New(rand.NewPCG(55, 56))
		for half := range 70 {
			cos, sin := numbers(rng, half), numbers(rng, half)
			x, mem := guarded(2 * half)
			copy(x, numbers(rng, 2*half))
			want := slices.Clone(x)
			portableRotateHalves(want[:half], want[half:], cos, sin)
			v.rotateHalves(x[:half], x[half:], cos, sin)
			if untouched(t, "rotateHalves", mem); !sameBits(x, want) {
				t.Fatalf("%d pairs in halves are %v, expected %v", half, x, want)
			}
			portableRotatePairs(want, cos, sin)
			v.rotatePairs(x, cos, sin)
			if untouched(t, "rotatePairs", mem); !sameBits(x, want) {
				t.Fatalf("%d pairs of neighbors are %v, expected %v", half, x, want)
			}
		}
	})
}

// TestQuantizeVectors checks that each set gives the bytes of numfmt.QuantizeQ8x2 and numfmt.QuantizeQ8,
// for blocks with any values.
func TestQuantizeVectors(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	eachSet(t, func(t *testing.T, v *vectors) {
		rng := rand.New(rand.NewPCG(35, 36))
		for round := range 300 {
			n := 32 * (round % 5)
			x := numbers(rng, n)
			for b := 0; b < n; b += 32 {
				x := x[b : b+32]
				switch at := rng.IntN(32); rng.IntN(10) {
				case 0:
					x[at] = nan
				case 1:
					x[at] = -inf
				case 2:
					clear(x)
				case 3:
					clear(x)
					x[at] = 0x1p-149
				case 4:
					clear(x)
					x[at] = 0x1p-114 // the inverse of the scale is just too large, or just not
					x[31-at] = pick(rng, 127, 16256) / math.MaxFloat32
				case 5:
					x[at] = -math.MaxFloat32
				case 6: // ties of rounding
					most := pick(rng, 127, 16256)
					for i := range x {
						x[i] = float32(rng.IntN(int(2*most)+1)) - most + 0.5
					}
					x[at] = most
				}
			}
			for format, f := range planarFormats {
				size := f.bytes(n)
				got, want := newMemory(size), make([]byte, size)
				v.quantize[format](got.data(), x)
				f.quantize(want, x)
				if !got.intact() || !slices.Equal(got.data(), want) {
					t.Fatalf("%v becomes % x in %s, expected % x", x, got.data(), format, want)
				}
			}
		}
	})
}

// TestWiden checks that each set gives the value of every float16 number, and any length.
func TestWiden(t *testing.T) {
	eachSet(t, func(t *testing.T, v *vectors) {
		src := make([]uint16, 1<<16)
		for i := range src {
			src[i] = uint16(i)
		}
		dst := make([]float32, len(src))
		v.widen(dst, src)
		for i, x := range dst {
			if want := numfmt.F16ToF32(src[i]); !(x == want || x != x && want != want) || math.Signbit(float64(x)) != math.Signbit(float64(want)) {
				t.Fatalf("%#x is %v, expected %v", src[i], x, want)
			}
		}
		for n := range 20 {
			dst, mem := guarded(n)
			v.widen(dst, src[1000:])
			untouched(t, "widen", mem)
			for i, x := range dst {
				if x != numfmt.F16ToF32(src[1000+i]) {
					t.Fatalf("element %d of %d is %v", i, n, x)
				}
			}
		}
	})
}

// TestNarrow checks that each set gives the bits of numfmt.F32ToF16, at, next to and halfway between float16
// numbers, for any length.
func TestNarrow(t *testing.T) {
	eachSet(t, func(t *testing.T, v *vectors) {
		var src []float32
		for h := range 1 << 16 {
			bits := math.Float32bits(numfmt.F16ToF32(uint16(h)))
			for _, near := range []uint32{0, 1, 1<<12 - 1, 1 << 12, 1<<12 + 1} {
				src = append(src, math.Float32frombits(bits+near))
			}
			src = append(src, numfmt.F16ToF32(uint16(h))+0x1p-25) // between subnormals
		}
		dst := make([]uint16, len(src))
		v.narrow(dst, src)
		for i, x := range src {
			if want := numfmt.F32ToF16(x); dst[i] != want {
				t.Fatalf("%v (%#x) is %#x, expected %#x", x, math.Float32bits(x), dst[i], want)
			}
		}
		for n := range 20 {
			dst := make([]uint16, n+1)
			dst[n] = 7
			v.narrow(dst[:n], src[1000:])
			for i, h := range dst[:n] {
				if h != numfmt.F32ToF16(src[1000+i]) || dst[n] != 7 {
					t.Fatalf("element %d of %d is %#x, the next %d", i, n, h, dst[n])
				}
			}
		}
	})
}

// TestCacheFormats checks for each cache format that keys and values are read back as ref.KV does, for
// any range of positions, and that no other element of a page or a tile is written.
func TestCacheFormats(t *testing.T) {
	eachSet(t, func(t *testing.T, v *vectors) {
		rng := rand.New(rand.NewPCG(37, 38))
		for format, makeParts := range cacheFormats {
			for _, dim := range []int{32, 64, 96, 256, 6, 20} {
				if format == "q8_0" && dim%numfmt.BlockLen != 0 {
					continue
				}
				p := makeParts(v, dim)
				keyPart, valuePart := newMemory(p.bytes), newMemory(p.bytes)
				stored := ref.KV{Width: dim, Positions: plan.PageTokens}
				switch n := plan.PageTokens * dim; format {
				case "f32":
					stored.F32 = make([]float32, n)
				case "f16":
					stored.F16 = make([]uint16, n)
				case "f8_e4m3":
					stored.FP8 = make([]uint8, n)
				case "q8_0":
					stored.Q8 = make([]byte, p.bytes)
				}
				for _, at := range rng.Perm(plan.PageTokens) {
					row := randoms(rng, dim, 3)
					stored.Store(0, at, row)
					before := slices.Clone(keyPart.data())
					p.putKey(keyPart.data(), at, row)
					p.putValue(valuePart.data(), at, row)
					changed := 0
					for i, b := range keyPart.data() {
						if b != before[i] {
							changed++
						}
					}
					if !keyPart.intact() || !valuePart.intact() || changed > p.bytes/plan.PageTokens {
						t.Fatalf("%s: storing position %d changed %d bytes, expected at most %d", format, at, changed, p.bytes/plan.PageTokens)
					}
				}
				stride := (dim + 15) / 16 * 16
				row := make([]float32, dim)
				for from := range plan.PageTokens {
					for to := from + 1; to <= plan.PageTokens; to++ {
						keys, keyMem := guarded(plan.PageTokens * dim)
						values, valueMem := guarded(plan.PageTokens * stride)
						p.keys(keys, keyPart.data(), from, to)
						p.values(values, stride, valuePart.data(), from, to)
						untouched(t, format, keyMem, valueMem)
						for at := range plan.PageTokens {
							stored.Load(row, 0, at)
							for i, want := range row {
								if at < from || at >= to {
									want = float32(math.NaN())
								}
								k, v := keys[i*plan.PageTokens+at], values[at*stride+i]
								if !(k == want || k != k && want != want) || !(v == want || v != v && want != want) {
									t.Fatalf("%s, %d elements, positions %d to %d: element %d of %d is %v as key, %v as value, expected %v", format, dim, from, to, i, at, k, v, want)
								}
							}
						}
					}
				}
			}
		}
	})
}

// TestPage compares the loops over a page with float64, for each number of queries and each visible
// range of the page, and checks that a query's results do not depend on other queries.
func TestPage(t *testing.T) {
	const scale = 0.3
	eachSet(t, func(t *testing.T, v *vectors) {
		rng := rand.New(rand.NewPCG(39, 40))
		for _, d := range []int{1, 6, 16, 64, 80} {
			for n := 1; n <= 9; n++ {
				for _, seen := range [][2]int{{0, 16}, {0, 1}, {15, 16}, {3, 11}, {7, 8}} {
					x, y := seen[0], seen[1]
					stride := (d + 15) / 16 * 16
					q, tile, values := randoms(rng, n*d, 1), randoms(rng, d*16, 1), randoms(rng, 16*stride, 1)
					for j := range 16 { // positions that are not seen may hold anything
						if j < x || j >= y {
							for i := range d {
								tile[i*16+j] = float32(math.NaN())
							}
							for i := range stride {
								values[j*stride+i] = float32(math.Inf(1))
							}
						}
					}
					acc, top, sum := randoms(rng, n*stride, 1), randoms(rng, n, 1), randoms(rng, n, 1)
					for i := range n {
						switch rng.IntN(4) {
						case 0: // the first page of a query
							top[i], sum[i] = float32(math.Inf(-1)), 0
							clear(acc[i*stride : (i+1)*stride])
						case 1:
							top[i] = 1e3
						}
					}
					run := func(from, to int) (accs, sums []float32) {
						n := to - from
						s, sMem := guarded(n * 16)
						a, aMem := guarded(n * stride)
						m, mMem := guarded(n)
						w, wMem := guarded(n)
						r, rMem := guarded(n)
						copy(a, acc[from*stride:])
						copy(m, top[from:])
						copy(w, sum[from:])
						v.scores(s, q[from*d:to*d], tile, n)
						v.weigh(s, m, w, r, x, y, scale)
						v.accumulate(a, s, r, values, n, x, y)
						untouched(t, "a page", sMem, aMem, mMem, wMem, rMem)
						return a, w
					}
					gotAcc, gotSum := run(0, n)
					for i := range n {
						alone, aloneSum := run(i, i+1)
						if !sameBits(alone, gotAcc[i*stride:(i+1)*stride]) || !sameBits(aloneSum, gotSum[i:i+1]) {
							t.Fatalf("%d queries of %d elements: query %d has other bits than alone", n, d, i)
						}
						// The running maximum cancels in acc/sum, but only there.
						highest := float64(top[i])
						var scores [16]float64
						for j := x; j < y; j++ {
							for k := range d {
								scores[j] += float64(q[i*d+k]) * float64(tile[k*16+j])
							}
							scores[j] *= scale
							highest = max(highest, scores[j])
						}
						shrink := math.Exp(float64(top[i]) - highest)
						total := float64(sum[i]) * shrink
						want := make([]float64, stride)
						for k := range want {
							want[k] = float64(acc[i*stride+k]) * shrink
						}
						for j := x; j < y; j++ {
							w := math.Exp(scores[j] - highest)
							total += w
							for k := range want {
								want[k] += w * float64(values[j*stride+k])
							}
						}
						const most = 1e-5
						if !(math.Abs(float64(gotSum[i])-total) <= most*(1+math.Abs(total))) {
							t.Fatalf("%d queries of %d elements, %d to %d: sum %d is %v, expected %v", n, d, x, y, i, gotSum[i], total)
						}
						for k, w := range want {
							if got := float64(gotAcc[i*stride+k]); !(math.Abs(got-w) <= most*(4+math.Abs(w))) {
								t.Fatalf("%d queries of %d elements, %d to %d: element %d of query %d is %v, expected %v", n, d, x, y, k, i, got, w)
							}
						}
					}
				}
			}
		}
	})
}

// TestDivide checks that each set divides with the bits of Go.
func TestDivide(t *testing.T) {
	eachSet(t, func(t *testing.T, v *vectors) {
		rng := rand.New(rand.NewPCG(57, 58))
		for n := range 40 {
			src, by := numbers(rng, n), numbers(rng, 1)[0]
			got, mem := guarded(n)
			v.divide(got, src, by)
			untouched(t, "divide", mem)
			for i, x := range got {
				if want := src[i] / by; math.Float32bits(x) != math.Float32bits(want) && (x == x || want == want) {
					t.Fatalf("%v / %v is %v, expected %v", src[i], by, x, want)
				}
			}
		}
	})
}

// TestWeighNaN checks that a NaN affects its query alone, and that weights of positions far below
// the highest are 0.
func TestWeighNaN(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	eachSet(t, func(t *testing.T, v *vectors) {
		const n = 5
		scores := make([]float32, n*16)
		for i := range scores {
			scores[i] = float32(i % 7)
		}
		scores[1*16+3], scores[2*16+4], scores[3*16+5] = nan, inf, -inf
		scores[4*16+6] = -1e30
		top, sum, shrink := make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range top {
			top[i] = -inf
		}
		v.weigh(scores, top, sum, shrink, 0, 16, 1)
		for i, lost := range []bool{false, true, true, false, false} {
			if got := sum[i] != sum[i]; got != lost {
				t.Errorf("query %d: the sum is %v", i, sum[i])
			}
		}
		if scores[3*16+5] != 0 || scores[4*16+6] != 0 {
			t.Errorf("weights of scores −Inf and −1e30 are %v and %v, expected 0", scores[3*16+5], scores[4*16+6])
		}
		if s := fmt.Sprint(shrink[0], shrink[3], shrink[4]); s != "0 0 0" {
			t.Errorf("sums without earlier weights are multiplied by %s, expected 0", s)
		}
	})
}

// TestSetsAgree checks that all sets in assembly give the same bits, so that a plan's results do not depend on which of
// them a machine has.
func TestSetsAgree(t *testing.T) {
	sets := runnableVectors()[1:] // without the portable one
	if len(sets) < 2 {
		t.Skip("runs in make prove, on the emulator: this machine runs no two sets in assembly")
	}
	rng := rand.New(rand.NewPCG(59, 60))
	agree := func(what string, results func(v *vectors) [][]float32) {
		t.Helper()
		want := results(sets[0])
		for _, v := range sets[1:] {
			for i, got := range results(v) {
				if !sameBits(got, want[i]) {
					t.Fatalf("%s: result %d is %v with %s and %v with %s", what, i, got, v.isa, want[i], sets[0].isa)
				}
			}
		}
	}
	for name := range portable.gates {
		for range 20 {
			x, up := numbers(rng, 100), numbers(rng, 100)
			agree(name, func(v *vectors) [][]float32 {
				y := make([]float32, len(x))
				v.gates[name](y, x, up)
				return [][]float32{y}
			})
		}
	}
	for _, d := range []int{1, 16, 32, 40, 64, 80, 128, 256} {
		for n := 1; n <= 19; n++ {
			stride := (d + 15) / 16 * 16
			x, y := rng.IntN(16), 16
			if rng.IntN(2) == 0 {
				x, y = 0, 1+rng.IntN(16)
			}
			q, tile, values := randoms(rng, n*d, 1), randoms(rng, d*16, 1), randoms(rng, 16*stride, 1)
			halfTile, halfValues := make([]uint16, len(tile)), make([]uint16, len(values))
			portable.narrow(halfTile, tile)
			portable.narrow(halfValues, values)
			acc, top, sum := randoms(rng, n*stride, 1), randoms(rng, n, 1), randoms(rng, n, 1)
			if n%3 == 0 {
				top[n-1] = float32(math.Inf(-1))
			}
			agree(fmt.Sprintf("%d queries of %d elements, positions %d to %d", n, d, x, y), func(v *vectors) [][]float32 {
				s, half := make([]float32, n*16), make([]float32, n*16)
				a, m, w, r := slices.Clone(acc), slices.Clone(top), slices.Clone(sum), make([]float32, n)
				v.scoresHalf(half, q, halfTile, n)
				v.scores(s, q, tile, n)
				scores := slices.Clone(s)
				v.weigh(s, m, w, r, x, y, 0.3)
				v.accumulate(a, s, r, values, n, x, y)
				b := slices.Clone(acc)
				v.accumulateHalf(b, s, r, halfValues, n, x, y)
				return [][]float32{half, scores, s, m, w, r, a, b}
			})
		}
	}
}
