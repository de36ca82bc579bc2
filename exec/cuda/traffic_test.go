package cuda_test

import (
	"math/rand/v2"
	"testing"

	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
)

// TestTraffic checks that gemv reads its weights once, in whole sectors, and x once for each of its blocks, since memory
// traffic limits the speed of decoding.
func TestTraffic(t *testing.T) {
	b := newBench(t, "sm_75")
	dev, ok := b.dev.(*virtual.Device)
	if !ok {
		t.Skip("only the virtual device counts what kernels read")
	}
	const n, k = 256, 2048
	rng := rand.New(rand.NewPCG(11, 0))
	x := b.put(randoms(rng, k))
	for _, l := range cuda.Layouts() {
		p := cuda.Product{X: x, K: k, M: 1}
		p.Ops[0] = cuda.Operand{Weight: b.weight(newMatrix(rng, l.Type, n, k)), Out: b.alloc(4 * n)}
		for _, exact := range []bool{false, true} {
			if !exact && !l.Integer {
				continue
			}
			call, err := p.Call(b.dev.Properties(), exact)
			before := counter(dev, call.Kernel)
			b.launch(call, err)
			after := counter(dev, call.Kernel)
			size := int64(l.Size(n, k))
			read := 32 * (after.Global.Parts - before.Global.Parts)
			want := size + int64(call.Grid.X)*4*k + 32*n // lanes write results one by one, each in its own sector
			t.Logf("%s exact=%v: %d bytes for %d of weights, %.1f instructions of a warp for 1024 of them", l.Type, exact, read, size,
				float64(after.Instructions.All()-before.Instructions.All())/(n*k/1024))
			if read > want*5/4 { // small scales fill less than a sector, so some sectors are read again
				t.Errorf("%s exact=%v: %d bytes in whole sectors, expected %d", l.Type, exact, read, want)
			}
			if fetched, need := after.Fetched-before.Fetched, size+4*k; fetched < need || fetched > need*102/100 {
				t.Errorf("%s exact=%v: memory gives %d bytes, expected the %d of weights and x", l.Type, exact, fetched, need)
			}
		}
	}
}

// counter returns the counts of a kernel so far.
func counter(dev *virtual.Device, kernel string) cuda.Counts {
	for _, c := range dev.Counters() {
		if c.Kernel == kernel {
			return c
		}
	}
	return cuda.Counts{}
}
