//go:build arm64 && !purego

package kernel

import (
	"unsafe"

	"pesti/gguf/quant"
)

// assemblyMatmuls are the matmul kernels with SDOT. They have run on an emulated processor only, and
// their speed has not been measured.
var assemblyMatmuls = neondotMatmuls()

func neondotMatmuls() (all []Matmul) {
	for _, k := range neondotKernels {
		all = append(all, gemvAndGemm("neondot", k.kind, "panel16", "q8x2", k.q8x2.tile(k.kind, 2))...)
		all = append(all, gemvAndGemm("neondot", k.kind, "panel16", "q8", k.q8.tile(k.kind, 4))...)
	}
	return all
}

var neondotKernels = []struct {
	kind     quant.Type
	q8x2, q8 neondot
}{
	{quant.Q4_0, neondot{neondotQ4_0_t1, neondotQ4_0_t2}, neondot{neondotQ4_0_q8_t1, neondotQ4_0_q8_t4}},
	{quant.Q4_1, neondot{neondotQ4_1_t1, neondotQ4_1_t2}, neondot{neondotQ4_1_q8_t1, neondotQ4_1_q8_t4}},
	{quant.Q5_0, neondot{neondotQ5_0_t1, neondotQ5_0_t2}, neondot{neondotQ5_0_q8_t1, neondotQ5_0_q8_t4}},
	{quant.Q5_1, neondot{neondotQ5_1_t1, neondotQ5_1_t2}, neondot{neondotQ5_1_q8_t1, neondotQ5_1_q8_t4}},
	{quant.Q8_0, neondot{neondotQ8_0_t1, neondotQ8_0_t2}, neondot{neondotQ8_0_q8_t1, neondotQ8_0_q8_t4}},
	{quant.Q4_K, neondot{neondotQ4_K_t1, neondotQ4_K_t2}, neondot{neondotQ4_K_q8_t1, neondotQ4_K_q8_t4}},
	{quant.Q5_K, neondot{neondotQ5_K_t1, neondotQ5_K_t2}, neondot{neondotQ5_K_q8_t1, neondotQ5_K_q8_t4}},
	{quant.Q6_K, neondot{neondotQ6_K_t1, neondotQ6_K_t2}, neondot{neondotQ6_K_q8_t1, neondotQ6_K_q8_t4}},
}

var assemblyWords wordsFunc

// A neondot has the kernels for one token and for several. They add the products of a panel's blocks to y; see
// _asm/neondot. For one plane, lo is not read.
type neondot struct {
	one, several func(y *float32, yStep int, w, x *byte, xStep int, hi, lo *int8, planeStep, blocks int)
}

// tile returns the tile kernel for a type. several is the number of tokens that k.several takes. All kernels give a
// token the bits of the portable kernel.
func (k neondot) tile(kind quant.Type, several int) tileFunc {
	const part = 1 << 14 // elements of a row in a call; limited because assembly cannot be preempted
	layout, _ := LookupLayout("panel16", kind)
	return func(y []float32, w []byte, n int, x *activation) {
		panels, panelBytes := (n+panelRows-1)/panelRows, layout.panel(x.k)
		xStep, planeStep := x.k/32*int(unsafe.Sizeof(qscale{})), len(x.planes.row(0))
		clear(y[:x.m*x.width])
		for p := range panels {
			panel := w[p*panelBytes:][:panelBytes]
			for at := 0; at < x.k; at += part {
				w, blocks := &panel[at/layout.Block*layout.Bytes], min(part, x.k-at)/layout.Block
				for m := 0; m < x.m; {
					f, tokens := k.one, 1
					if x.m-m >= several {
						f, tokens = k.several, several
					}
					hi, lo := x.planes.split(x.first + m)
					if lo == nil {
						lo = hi
					}
					f(&y[m*x.width+p*panelRows], 4*x.width, w, (*byte)(unsafe.Pointer(&x.scales[(m*x.k+at)/32])), xStep,
						&hi[at], &lo[at], planeStep, blocks)
					m += tokens
				}
			}
		}
	}
}
