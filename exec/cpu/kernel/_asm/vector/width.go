package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	"pesti/exec/cpu/kernel/_asm/constant"
)

// A width is the width of vectors in a function, and what its instruction set calls the same operation.
type width struct {
	set     string // suffix of the function's name
	bytes   int
	vec     func() vec
	and, or func(...Op)
	xor     func(...Op)
	mask    func(a, b, to Op) // and, of integers
	round   func(from, to Op) // to the nearest integer
}

var (
	avx2   = width{"AVX2", 32, YMM, VANDPS, VORPS, VXORPS, VPAND, func(from, to Op) { VROUNDPS(Imm(0), from, to) }}
	avx512 = width{"AVX512", 64, ZMM, VPANDD, VPORD, VPXORD, func(a, b, to Op) { VPANDD(a, b, to) }, func(from, to Op) { VRNDSCALEPS(Imm(0), from, to) }}
)

// lanes returns the number of 32-bit elements.
func (w width) lanes() int { return w.bytes / 4 }

func (w width) vectors(n int) (v []vec) {
	for range n {
		v = append(v, w.vec())
	}
	return v
}

// clear sets v to 0. With AVX-512 that is a load, because avo takes VPXORD for a use of what v was before.
func (w width) clear(v vec) {
	if w.bytes == avx2.bytes {
		VXORPS(v, v, v)
		return
	}
	VMOVUPS(constant.Bits32(0), v)
}

// choose sets to to a where the sign bit of v is set, and to b elsewhere.
func (w width) choose(v, a, b, to vec) {
	if w.bytes == avx2.bytes {
		VBLENDVPS(v, a, b, to)
		return
	}
	k := K()
	VPTESTMD(constant.Bits32(sign), v, k)
	VBLENDMPS(a, b, k, to)
}
