package exec_test

import (
	"bytes"
	"os"
	"runtime"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/lower"
)

// packedISA is an instruction set whose kernels read packed weights.
func packedISA(t *testing.T) string {
	if _, err := isa.UpTo("avx2"); err != nil {
		t.Skip("this machine has no instruction set whose kernels read packed weights: ", err)
	}
	return "avx2" // builds without AVX2 kernels compute it with portable kernels
}

// TestPack checks that any number of workers packs each weight to the same bytes as a single call.
func TestPack(t *testing.T) {
	for name, config := range configs {
		m := load(t, config)
		p := compile(t, m, lower.Options{ISA: packedISA(t), Threads: 7}).Plan
		if p.Memory.Packed == 0 {
			t.Fatalf("%s: the plan packs nothing", name)
		}
		for _, threads := range []int{1, 2, 7} {
			e := open(t, m, p, threads)
			for i := range p.Weights {
				w := &p.Weights[i]
				got := e.PackedWeight(w.Name)
				if w.Layout == "" {
					if got != nil {
						t.Errorf("%s: %s was packed, expected the file's order", name, w.Name)
					}
					continue
				}
				tensor, _ := m.File.Tensor(w.Name)
				l, ok := kernel.LookupLayout(w.Layout, tensor.Type)
				if !ok {
					t.Fatalf("%s: no layout %s of %s", name, w.Layout, w.Type)
				}
				n, k := int(w.Dims[0]), int(w.Dims[1])
				want := make([]byte, l.Size(n, k))
				l.Pack(want, m.File.Bytes(tensor), n, k, 0, l.Panels(n))
				if !bytes.Equal(got, want) {
					t.Errorf("%s, %d workers: %s is packed otherwise than by one call", name, threads, w.Name)
				}
			}
		}
	}
}

// A file that is truncated before packing is an error that names the file.
func TestPackShrunk(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let a mapped file shrink")
	}
	f := tiny.Mapped(t, tiny.Config{Arch: "llama", FF: 2048, Types: []quant.Type{quant.Q8_0}}) // several pages for each block
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	p := compile(t, m, lower.Options{ISA: packedISA(t)}).Plan
	if err := os.Truncate(f.Path, f.Size/4); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.Open(p, f, exec.Options{Threads: 2}); err == nil || err.Error() != f.Path+": became shorter while it was read; open it again" {
		t.Errorf("error %v", err)
	}
}
