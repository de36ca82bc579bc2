// Command probe generates the AVX2 kernels that measure the peak rates of a core.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("!purego")
	read()
	multiply("probeF32AVX2", "p is 8 float32, and each of the 8 sums at out becomes 12·n·p²", func(acc, product, p reg.VecVirtual) {
		VFMADD231PS(p, p, acc)
	}, VADDPS)
	multiply("probeInt16AVX2", "p is 16 int16, and each of the 8 int32 sums at out becomes 12·n·Σp² of two", func(acc, product, p reg.VecVirtual) {
		VPMADDWD(p, p, product)
		VPADDD(product, acc, acc)
	}, VPADDD)
	multiply("probeInt8AVX2", "p is 32 int8 of 0 or more, and each of the 16 int16 sums at out becomes 12·n·Σp² of two", func(acc, product, p reg.VecVirtual) {
		VPMADDUBSW(p, p, product)
		VPADDW(product, acc, acc)
	}, VPADDW)
	Generate()
}

// read writes the kernel that reads memory as a product of many rows does: in four sequential streams at the same
// time. Its result depends on every byte, so that no read can be left out.
func read() {
	const (
		streams = 4
		line    = 64   // bytes of each stream in a round
		ahead   = 1024 // prefetch distance in bytes
	)
	TEXT("probeReadAVX2", NOSPLIT, "func(p *byte, stride, n int) uint64")
	Doc(fmt.Sprintf("probeReadAVX2 returns the exclusive or of all 64-bit words of n bytes at p and at each of the %d next strides. n is a multiple of %d.", streams-1, line))
	p := make([]Mem, streams)
	stride, n := Load(Param("stride"), GP64()), Load(Param("n"), GP64())
	for i := range p {
		base := GP64()
		if i == 0 {
			Load(Param("p"), base)
		} else {
			MOVQ(p[i-1].Base, base)
			ADDQ(stride, base)
		}
		p[i] = Mem{Base: base}
	}
	sums := make([]reg.VecVirtual, 2*streams)
	for i := range sums {
		sums[i] = YMM()
		VPXOR(sums[i], sums[i], sums[i])
	}

	Label("round")
	CMPQ(n, U32(line))
	JL(LabelRef("fold"))
	for i, m := range p {
		PREFETCHT0(m.Offset(ahead))
		VPXOR(m, sums[2*i], sums[2*i])
		VPXOR(m.Offset(32), sums[2*i+1], sums[2*i+1])
		ADDQ(Imm(line), m.Base)
	}
	SUBQ(U32(line), n)
	JMP(LabelRef("round"))

	Label("fold")
	for i := 1; i < len(sums); i++ {
		VPXOR(sums[i], sums[0], sums[0])
	}
	half := XMM()
	VEXTRACTI128(Imm(1), sums[0], half)
	VPXOR(half, sums[0].AsX(), half)
	word, other := GP64(), GP64()
	VMOVQ(half, word)
	VPEXTRQ(Imm(1), half, other)
	XORQ(other, word)
	Store(word, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// multiply writes the inner loop of a product without its loads. It has enough independent sums to hide the
// latency of an instruction, and updates each of them n times.
func multiply(name, what string, step func(acc, product, p reg.VecVirtual), add func(ops ...Op)) {
	const sums = 12
	TEXT(name, NOSPLIT, "func(out, p *[32]byte, n int)")
	Doc(name + ": " + what + ".")
	out, from, n := Load(Param("out"), GP64()), Load(Param("p"), GP64()), Load(Param("n"), GP64())
	p := YMM()
	VMOVDQU(Mem{Base: from}, p)
	acc := make([]reg.VecVirtual, sums)
	for i := range acc {
		acc[i] = YMM()
		VPXOR(acc[i], acc[i], acc[i])
	}

	Label("round")
	TESTQ(n, n)
	JLE(LabelRef("fold"))
	for _, a := range acc {
		step(a, YMM(), p)
	}
	DECQ(n)
	JMP(LabelRef("round"))

	Label("fold")
	for i := 1; i < sums; i++ {
		add(acc[i], acc[0], acc[0])
	}
	VMOVDQU(acc[0], Mem{Base: out})
	VZEROUPPER()
	RET()
}
