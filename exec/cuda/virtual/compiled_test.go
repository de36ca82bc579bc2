package virtual

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

func testdata(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestNorm runs a compiled RMSNorm, which has divergent loops, shuffles and two barriers.
func TestNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 31, 32, 33, 200, 576} {
		b := newBench(t, Config{})
		const rows = 3
		x, w := make([]float32, rows*n), make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		for i := range w {
			w[i] = float32(rng.NormFloat64())
		}
		px, pw := b.upload(floatsOf(x...)), b.upload(floatsOf(w...))
		py, err := b.device.Alloc(int64(4 * rows * n))
		b.check(err)
		p := binary.LittleEndian.AppendUint64(nil, uint64(px))
		p = binary.LittleEndian.AppendUint64(p, uint64(pw))
		p = binary.LittleEndian.AppendUint64(p, uint64(py))
		p = binary.LittleEndian.AppendUint32(p, uint32(n))
		p = append(p, floatsOf(1e-5)...)
		b.check(b.run(b.kernel(testdata(t, "compiled.ptx"), "rmsnorm", 0), rows, 128, 0, p))
		got := toFloats(b.download(py, 4*rows*n))
		for r := range rows {
			var sum float64
			for _, v := range x[r*n : (r+1)*n] {
				sum += float64(v) * float64(v)
			}
			scale := 1 / math.Sqrt(sum/float64(n)+1e-5)
			for i := range n {
				want := float64(x[r*n+i]) * scale * float64(w[i])
				if d := math.Abs(want - float64(got[r*n+i])); d > 1e-5*math.Max(1, math.Abs(want)) {
					t.Fatalf("n=%d row %d element %d: %g, want %g", n, r, i, got[r*n+i], want)
				}
			}
		}
	}
}
