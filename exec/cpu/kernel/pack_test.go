package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pesti/exec/cpu/isa"
)

// runnablePacks returns the packing kernels that this machine supports.
func runnablePacks() (some []*packKernel) {
	for i := range assemblyPacks {
		p := &assemblyPacks[i]
		if _, err := isa.UpTo(p.isa); err == nil && (*onlyISA == "" || p.isa == *onlyISA) {
			some = append(some, p)
		}
	}
	return some
}

// TestPackers checks that the kernels of each instruction set store the same bytes as the portable code
// and write nothing else: for random file bytes, all numbers of rows, rows that are not whole groups or
// are longer than a call, and parts packed by several workers.
func TestPackers(t *testing.T) {
	for _, p := range runnablePacks() {
		l, _ := LookupLayout("panel16", p.kind)
		info := l.info()
		pack := l.packer(p)
		for _, k := range []int{l.Block, p.group, 3 * p.group, 3*p.group + l.Block, 1<<12 + p.group} {
			for _, n := range []int{1, 15, 16, 17, 50} {
				file := make([]byte, n*k/info.BlockLen*info.BlockBytes)
				rng := rand.New(rand.NewPCG(uint64(n), uint64(k)))
				for i := range file {
					file[i] = byte(rng.Uint32())
				}
				want := make([]byte, l.Size(n, k))
				l.Pack(want, file, n, k, 0, l.Panels(n))

				m, panels := newMemory(l.Size(n, k)), l.Panels(n)
				pack(m.data(), file, n, k, panels/2, panels)
				if before := panels / 2 * l.panel(k); bytes.Count(m.data()[:before], []byte{0xa5}) != before {
					t.Errorf("%s %s: a panel outside the range was written", p.isa, p.kind)
				}
				pack(m.data(), file, n, k, 0, panels/2)
				pack(m.data(), file, n, k, panels, panels) // a worker without panels
				if !bytes.Equal(m.data(), want) {
					t.Errorf("%s %s: %d rows of %d elements are packed otherwise than portably", p.isa, p.kind, n, k)
				}
				if !m.intact() {
					t.Errorf("%s %s: bytes around the panels were written", p.isa, p.kind)
				}
			}
		}
	}
}

// TestPackerSets checks that the best of the allowed instruction sets is used.
func TestPackerSets(t *testing.T) {
	for i := range assemblyPacks {
		p := &assemblyPacks[i]
		if got := packKernelOf(p.kind, []string{"portable", p.isa}); got == nil || got.isa != p.isa {
			t.Errorf("%s: kernel %+v, expected that for %s", p.kind, got, p.isa)
		}
		if got := packKernelOf(p.kind, []string{"portable"}); got != nil {
			t.Errorf("%s: kernel for %s, expected none for a portable plan", p.kind, got.isa)
		}
	}
}
