package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/gguf/quant"
)

// TestLayouts checks that exec/plan has the same layouts with the same sizes.
func TestLayouts(t *testing.T) {
	for _, p := range plan.Layouts() {
		// The other layouts are for CUDA devices.
		if info, ok := quant.ByName(p.Type); !ok || p.Name == "panel16" && !slices.ContainsFunc(Layouts(), func(l Layout) bool { return l.Type == info.Type }) {
			t.Errorf("plans have layout %s of %s, kernels have none", p.Name, p.Type)
		}
	}
	for _, l := range Layouts() {
		p, ok := plan.LookupLayout(l.Name, strings.ToLower(l.Type.String()))
		if !ok || p.Rows != panelRows || p.Block != int64(l.Block) || p.Bytes != int64(l.Bytes) {
			t.Errorf("%s of %s: blocks of %d rows, %d elements, %d bytes; in plans %+v", l.Name, l.Type, panelRows, l.Block, l.Bytes, p)
		}
	}
	if _, ok := LookupLayout("panel16", quant.IQ4_XS); ok {
		t.Error("a type without a layout has one")
	}
}

// TestPack packs random blocks in parts, as several workers do, and checks that every row has the bits
// of the file's values, that missing rows are zero, and that nothing else is written.
func TestPack(t *testing.T) {
	for _, l := range Layouts() {
		info := l.info()
		for _, n := range []int{1, 15, 16, 17, 50} {
			for _, k := range []int{l.Block, 3 * l.Block, 9 * l.Block} {
				file := randomBlocks(rand.New(rand.NewPCG(uint64(n), uint64(k))), info, n*k)
				m := newMemory(l.Size(n, k))
				for i := range m.data() {
					m.data()[i] = 0xa5
				}
				panels := l.Panels(n)
				l.Pack(m.data(), file, n, k, panels/2, panels)
				if before := panels / 2 * l.panel(k); bytes.Count(m.data()[:before], []byte{0xa5}) != before {
					t.Errorf("%s: a panel outside the range was written", l.Type)
				}
				l.Pack(m.data(), file, n, k, 0, panels/2)
				if !m.intact() {
					t.Errorf("%s: bytes around the panels were written", l.Type)
				}
				values, row := make([]float32, n*k), make([]float32, k)
				info.Dequantize(values, file)
				for r := range panels * panelRows {
					want := make([]float32, k)
					if r < n {
						want = values[r*k : (r+1)*k]
					}
					l.row(row, m.data(), r, new(swarSpan))
					for i := range row {
						if math.Float32bits(row[i]) != math.Float32bits(want[i]) && (r < n || row[i] != 0) {
							t.Fatalf("%s: element %d of row %d of %d×%d is %v, expected %v", l.Type, i, r, n, k, row[i], want[i])
						}
					}
				}
			}
		}
	}
}

// TestPackedBits checks that products of packed weights have the bits of products of unpacked ones, for
// all numbers of tokens and rows. This holds for portable kernels and for integer kernels of every
// instruction set. Inputs include very large activations and scales that are zero or subnormal.
func TestPackedBits(t *testing.T) {
	for _, mm := range runnable() {
		if mm.Layout == "" || mm.ISA != "portable" && mm.Act == "f32" {
			continue
		}
		t.Run(mm.Name+" "+mm.ISA, func(t *testing.T) {
			t.Parallel()
			l, _ := LookupLayout(mm.Layout, mm.Type)
			for _, shape := range [][2]int{{1, 1}, {16, 3}, {37, 9}, {260, 2}} {
				n, k := shape[0], shape[1]*l.Block
				if mm.Act == "bf16" {
					k = shape[1] * max(l.Block, tileK)
				}
				const most = 65
				rng := rand.New(rand.NewPCG(uint64(n), uint64(k)))
				c := newCall("matmul_group", "T", "rows", 16, intParam("k", k), intParam("n0", n))
				c.isa, c.scratch = "portable", scratchOf(mm.Act, most, k)
				x := randoms(rng, most*k, 1)
				for i := range x {
					x[i] *= float32(math.Exp(rng.NormFloat64() * 8))
				}
				c.setActivations(mm.Act, most, k, x)
				c.putWeight(rng, "w0", strings.Replace(mm.Name, "."+mm.Layout, "", 1), mm.Type, n, k)
				out := c.put("out0", make([]float32, most*n)).data()
				c.run(t, 1, Run{T: most}, "out0")
				want := bytes.Clone(out)
				c.isa = mm.ISA
				c.pack("w0", mm, n, k)
				for _, m := range []int{1, 2, 3, 4, 5, 7, 8, 16, 31, 33, 64, most} {
					c.run(t, 2, Run{T: m}, "out0")
					if !bytes.Equal(out[:4*m*n], want[:4*m*n]) {
						t.Fatalf("%d×%d times %d rows differs from the product as in the file", n, k, m)
					}
				}
			}
		})
	}
}
