package cuda

import "testing"

// TestCalls checks that launches stay within the limits of every GPU, and that parameters which do
// not fit are an error.
func TestCalls(t *testing.T) {
	turing := Properties{Name: "a GPU", Major: 7, Minor: 5, SMs: 40, Shared: 64 << 10}
	product := func(k, m, rows int) Product {
		p := Product{K: uint32(k), M: uint32(m)}
		p.Ops[0].Weight.Rows = uint32(rows)
		return p
	}
	for _, c := range []struct {
		k, m, rows, columns int
		exact               bool
		kernel              string
	}{
		{896, 1, 896, 1, false, "gemv_1"},
		{896, 2, 151936, 2, false, "gemv_2"},
		{896, 512, 4864, 8, false, "gemv_8"},
		{4864, 8, 896, 4, false, "gemv_4"}, // eight columns would take 92 KB
		{14336, 8, 4096, 1, false, "gemv_1"},
		{4864, 8, 896, 2, true, "gemv_f32_2"},
		{896, 3, 896, 4, true, "gemv_f32_4"},
		{4096, 3, 896, 2, true, "gemv_f32_2"}, // four columns would leave nothing of the 64 KiB
		{8192, 3, 896, 1, true, "gemv_f32_1"},
		{4096, 8, 896, 4, false, "gemv_4"},
		{16384, 8, 896, 1, false, "gemv_1"},
	} {
		call, err := product(c.k, c.m, c.rows).Call(turing, c.exact)
		if err != nil || call.Kernel != c.kernel || call.Shared > turing.room() || call.Grid.Y != (c.m+c.columns-1)/c.columns {
			t.Errorf("%+v: %s, grid %v, %d bytes of shared memory, %v", c, call.Kernel, call.Grid, call.Shared, err)
		}
	}
	if call, err := product(16384, 1, 8).Call(turing, true); err == nil {
		t.Errorf("a row of all the shared memory: %d bytes", call.Shared)
	}
	for _, exact := range []bool{false, true} {
		if call, err := product(32768, 1, 8).Call(turing, exact); err == nil {
			t.Errorf("exact=%v: %d bytes of shared memory", exact, call.Shared)
		}
	}
	for _, a := range []Attention{
		{Heads: 64, KVHeads: 8, HeadDim: 128, Positions: 131072, M: 1},
		{Heads: 4, KVHeads: 1, HeadDim: 256, Positions: 1024, Window: 512, M: 512},
		{Heads: 9, KVHeads: 3, HeadDim: 64, Positions: 2048, M: 8},
	} {
		for _, f := range []func() (Call, error){
			func() (Call, error) { return a.Call(turing, "f16") },
			func() (Call, error) { return a.Prefill(turing, "f16") },
			func() (Call, error) { return a.StoreKV("f16") },
		} {
			call, err := f()
			if err != nil || call.Shared > turing.room() || call.Grid.Y > 65535 || call.Grid.Z > 65535 {
				t.Errorf("%+v: %s, grid %v, %d bytes of shared memory, %v", a, call.Kernel, call.Grid, call.Shared, err)
			}
		}
	}
	wide := Attention{Heads: 8, KVHeads: 1, HeadDim: 264, Positions: 64, M: 1}
	if _, err := wide.Call(turing, "f16"); err == nil {
		t.Error("a kernel for heads of 264 elements")
	}
	if _, err := (Attention{Heads: 64, KVHeads: 1, HeadDim: 256, Positions: 64, M: 1}).Call(turing, "f16"); err == nil {
		t.Error("64 heads of 256 elements fit in shared memory")
	}
	// A window of 300 positions can begin anywhere, so it can touch three splits of 256.
	if a := (Attention{Positions: 4096, Window: 300}); a.splits() != 3 {
		t.Errorf("%d parts", a.splits())
	}
}
