//go:build amd64 && !purego

package kernel

import "pesti/gguf/quant"

var assemblyPacks = []packKernel{
	{"avx2", quant.F32, 4, packF32},
	{"avx2", quant.F16, 8, packF16},
	{"avx2", quant.BF16, 8, packF16},
	{"avx2", quant.Q4_0, 32, packQ4_0},
	{"avx2", quant.Q4_1, 32, packQ4_1},
	{"avx2", quant.Q5_0, 32, packQ5_0},
	{"avx2", quant.Q5_1, 32, packQ5_1},
	{"avx2", quant.Q8_0, 32, packQ8_0},
	{"avx2", quant.Q4_K, 256, packQ4_K},
	{"avx2", quant.Q5_K, 256, packQ5_K},
	{"avx2", quant.Q6_K, 256, packQ6_K},
}
