package cuda_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pesti/exec/cuda"
	"pesti/gguf/numfmt"
	"pesti/ops/ref"
)

// TestEmbed checks that rows of each type have the bits of the file's values times a scale.
func TestEmbed(t *testing.T) {
	b := newBench(t, "sm_75")
	rng := rand.New(rand.NewPCG(1, 1))
	for _, l := range cuda.Layouts() {
		n := 3 * l.Block
		table, tokens := newMatrix(rng, l.Type, 9, n), []int32{8, 0, 3, 3}
		for _, scale := range []float32{1, 25.298221} {
			y := b.alloc(4 * n * len(tokens))
			b.launch(cuda.Embed{Tokens: b.put(tokens), Y: y, Table: b.weight(table), Scale: scale, N: uint32(n), M: uint32(len(tokens))}.Call())
			got := get[float32](b, y, n*len(tokens))
			for i, id := range tokens {
				want := slices.Clone(table.values[int(id)*n:][:n])
				for j := range want {
					want[j] *= scale
				}
				if !sameBits(got[i*n:(i+1)*n], want) {
					t.Errorf("%s: token %d differs", l.Type, id)
				}
			}
		}
	}
}

// TestEmbedTaken checks that negative tokens refer to tokens in Taken.
func TestEmbedTaken(t *testing.T) {
	b := newBench(t, "sm_75")
	table, y := newMatrix(rand.New(rand.NewPCG(1, 3)), "f32", 5, 32), b.put(make([]float32, 4*32))
	b.launch(cuda.Embed{Tokens: b.put([]int32{-2, 3, -1, -3}), Taken: b.put([]int32{4, 0, -1}), Y: y, Table: b.weight(table), Scale: 1, N: 32, M: 4}.Call())
	got := get[float32](b, y, 4*32)
	for i, id := range []int{0, 3, 4} {
		if !sameBits(got[i*32:][:32], table.values[id*32:][:32]) {
			t.Errorf("place %d is not token %d", i, id)
		}
	}
	if !sameBits(got[96:], make([]float32, 32)) {
		t.Error("a row that was none left something")
	}
}

// TestEmbedPart checks that tokens before the first row and after the last row of a part give zeros.
func TestEmbedPart(t *testing.T) {
	b := newBench(t, "sm_75")
	for _, first := range []uint32{0, 5} {
		table, tokens := newMatrix(rand.New(rand.NewPCG(1, 2)), "q8_0", 2, 64), []int32{int32(first) + 1, int32(first) + 2, int32(first), int32(first) - 1}
		y := b.put(slices.Repeat([]float32{7}, 64*len(tokens)))
		b.launch(cuda.Embed{Tokens: b.put(tokens), Y: y, Table: b.weight(table), Scale: 1, N: 64, M: uint32(len(tokens)), First: first}.Call())
		want := make([]float32, 64*len(tokens))
		copy(want, table.values[64:])
		copy(want[2*64:], table.values[:64])
		if got := get[float32](b, y, len(want)); !sameBits(got, want) {
			t.Errorf("first %d: %v", first, got)
		}
	}
}

// q8x2 converts a q8x2 matrix of the device to the row format of the CPU.
func q8x2(data []byte, m, n int) []byte {
	var rows []byte
	for r := range m {
		at := 0
		for _, size := range []int{n, n, n / 8, n / 4} { // hi, lo, scale, sum
			rows = append(rows, data[at+r*size:][:size]...)
			at += m * size
		}
	}
	return rows
}

// TestNorm compares norms, with and without Add, with the reference, and rounding to q8x2 with the
// CPU's, bit by bit.
func TestNorm(t *testing.T) {
	b := newBench(t, "sm_75")
	for i, n := range []int{32, 96, 896, 2080} {
		const m = 5
		rng := rand.New(rand.NewPCG(2, uint64(i)))
		x, w, add := randoms(rng, m*n), randoms(rng, n), randoms(rng, m*n)
		for j := range n { // zeros, values too small to be quantized, and large values
			x[n+j], x[2*n+j], x[3*n+j] = 0, 1e-38*x[2*n+j], 1e15*x[3*n+j]
		}
		p := cuda.Norm{X: b.put(x), W: b.put(w), Y: b.alloc(4 * m * n), N: uint32(n), M: m, Eps: 1e-6}
		want := make([]float32, m*n)
		ref.RMSNorm(want, x, w, n, 1e-6)
		b.launch(p.Call())
		normed := get[float32](b, p.Y, m*n)
		for j, v := range want {
			if !(math.Abs(float64(normed[j]-v)) <= 5e-7*math.Abs(float64(v))) {
				t.Fatalf("n=%d: element %d is %v, expected %v", n, j, normed[j], v)
			}
		}

		p.Add, p.Y = b.put(add), b.alloc(4*m*n)
		b.launch(p.Call())
		ref.Add(want, add, normed)
		if !sameBits(get[float32](b, p.Y, m*n), want) {
			t.Errorf("n=%d: norm and addition differ from one after the other", n)
		}

		for _, from := range [][]float32{normed, x} {
			p.Add, p.Quantized, p.Y = 0, 1, b.alloc(m*numfmt.Q8x2Bytes(n))
			if &from[0] == &x[0] {
				p.W = 0
			}
			b.launch(p.Call())
			got := q8x2(get[byte](b, p.Y, m*numfmt.Q8x2Bytes(n)), m, n)
			row := make([]byte, numfmt.Q8x2Bytes(n))
			for r := range m {
				numfmt.QuantizeQ8x2(row, from[r*n:(r+1)*n])
				if !bytes.Equal(got[r*len(row):(r+1)*len(row)], row) {
					t.Errorf("n=%d normed=%v: row %d is not what the CPU rounds to", n, p.W != 0, r)
				}
			}
		}
	}
}

// TestQuantizeNaN checks that a block with NaN or an infinity has a scale that is NaN, and that other blocks do not change.
func TestQuantizeNaN(t *testing.T) {
	b := newBench(t, "sm_75")
	x := randoms(rand.New(rand.NewPCG(2, 9)), 128)
	x[40], x[70] = float32(math.NaN()), float32(math.Inf(-1))
	p := cuda.Norm{X: b.put(x), Y: b.alloc(numfmt.Q8x2Bytes(128)), N: 128, M: 1, Quantized: 1}
	b.launch(p.Call())
	got, want := make([]float32, 128), make([]float32, 128)
	row := make([]byte, numfmt.Q8x2Bytes(128))
	numfmt.QuantizeQ8x2(row, x)
	numfmt.DequantizeQ8x2(want, row)
	numfmt.DequantizeQ8x2(got, get[byte](b, p.Y, len(row)))
	if !sameBits(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}

func TestSelect(t *testing.T) {
	b := newBench(t, "sm_75")
	x := randoms(rand.New(rand.NewPCG(3, 3)), 4*300)
	for _, rows := range [][]int32{{3}, {0, 2, 2}, nil} {
		p := cuda.Select{X: b.put(x), Y: b.alloc(4 * 300 * 4), N: 300, M: 4}
		want := x
		if rows != nil {
			p.Rows, p.M, want = b.put(rows), uint32(len(rows)), nil
			for _, r := range rows {
				want = append(want, x[300*r:300*(r+1)]...)
			}
		}
		b.launch(p.Call())
		if !sameBits(get[float32](b, p.Y, len(want)), want) {
			t.Errorf("rows %v differ", rows)
		}
	}
}
