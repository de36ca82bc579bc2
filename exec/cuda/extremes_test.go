package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pesti/exec/cuda"
	"pesti/gguf/quant"
	"pesti/ops/ref"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// extremeRows are rows of k elements: ordinary, zeros, with a NaN, with an infinity, huge, tiny, and so small that a
// block of them is rounded to nothing.
func extremeRows(rng *rand.Rand, k int) (x []float32, m int) {
	for i, change := range []func(row []float32){
		func(row []float32) {},
		func(row []float32) { clear(row) },
		func(row []float32) { row[k/2+3] = nan },
		func(row []float32) { row[k-1] = -inf },
		func(row []float32) { scaleBy(row, 1e30) },
		func(row []float32) { scaleBy(row, 1e-30) },
		func(row []float32) { scaleBy(row[:32], 1e-40) },
		func(row []float32) { clear(row[1:]); row[0] = math.MaxFloat32 / 2 },
	} {
		row := randoms(rng, k)
		change(row)
		x, m = append(x, row...), i+1
	}
	return x, m
}

func scaleBy(x []float32, by float32) {
	for i := range x {
		x[i] *= by
	}
}

// extremeMatrix has rows of a type as random bits have them, and some whose scales, or whose first elements where there
// are none, are zero, the least and the largest of their format, an infinity and a NaN.
func extremeMatrix(rng *rand.Rand, kind string, k int) *matrix {
	halves := []uint16{0, 0x8000, 1, 0x7bff, 0xfbff, 0x7c00, 0x7e00}
	m := newMatrix(rng, kind, len(halves)+2, k)
	info, _ := quant.ByName(kind)
	row := len(m.file) / m.n
	for i, h := range halves {
		at := m.file[(i+1)*row:]
		value := quant.F16ToF32(h)
		switch {
		case len(info.Scales) > 0:
			for _, s := range info.Scales {
				binary.LittleEndian.PutUint16(at[s.At:], h)
			}
		case kind == "f32":
			binary.LittleEndian.PutUint32(at, math.Float32bits(value))
		case kind == "bf16":
			binary.LittleEndian.PutUint16(at, uint16(math.Float32bits(value)>>16))
		case kind == "f16":
			binary.LittleEndian.PutUint16(at, h)
		case kind == "f8_e4m3":
			at[0] = ref.E4M3(value)
		}
	}
	info.Dequantize(m.values, m.file)
	return m
}

// TestExtremes holds products of every type, for few columns and for many, to sums in float64: what is finite
// there is near, what overflows or is no number there is not finite, and nothing goes to another row or column.
func TestExtremes(t *testing.T) {
	for _, isa := range []string{"sm_75", "sm_80", "sm_89"} {
		b := newBench(t, isa)
		for _, exact := range []bool{false, true} {
			for _, l := range cuda.Layouts() {
				if !exact && !l.Integer || isa == "sm_80" && exact || isa == "sm_89" && l.Type != "f8_e4m3" {
					continue // the same kernels as for the target before
				}
				t.Run(fmt.Sprintf("%s exact=%v %s", isa, exact, l.Type), func(t *testing.T) {
					b.t = t
					rng := rand.New(rand.NewPCG(21, uint64(l.Code)))
					k := 2 * l.Block
					w := extremeMatrix(rng, l.Type, k)
					x, m := extremeRows(rng, k)
					testExtremes(b, w, x, m, exact, false)
					testExtremes(b, w, x, m, exact, true)
					for c := range m {
						testExtremes(b, w, x[c*k:(c+1)*k], 1, exact, false)
					}
				})
			}
		}
	}
}

func testExtremes(b *bench, w *matrix, x []float32, m int, exact, tiles bool) {
	b.t.Helper()
	k := w.k
	p := cuda.Product{X: b.put(x), K: uint32(k), M: uint32(m)}
	p.Ops[0] = cuda.Operand{Weight: b.weight(w), Out: b.alloc(4 * m * w.n)}
	switch {
	case !tiles:
		b.launch(p.Call(b.dev.Properties(), exact))
	case !exact:
		rounded := b.alloc(m * ref.Q8x2Bytes(k))
		b.launch(cuda.Norm{X: p.X, Y: rounded, N: p.K, M: p.M, Quantised: 1}.Call())
		p.X = rounded
		fallthrough
	default:
		b.launch(p.Tiles(exact))
	}
	if !exact {
		x = asQ8x2(x, k)
	}
	for i, g := range get[float32](b, p.Ops[0].Out, m*w.n) {
		want, size := dot(x[i/w.n*k:(i/w.n+1)*k], w.values[i%w.n*k:(i%w.n+1)*k])
		got := float64(g)
		switch {
		case !finite(want) || !finite(size):
			if finite(got) {
				b.t.Errorf("tiles=%v: column %d row %d is %v, expected %v", tiles, i/w.n, i%w.n, g, want)
			}
		case size > math.MaxFloat32: // a part of the sum overflows, maybe
		case !(math.Abs(got-want) <= 4e-7*size+1e-37):
			b.t.Errorf("tiles=%v: column %d row %d is %v, expected %v ± %v", tiles, i/w.n, i%w.n, g, want, 4e-7*size)
		}
	}
}

func finite(x float64) bool { return x-x == 0 }
