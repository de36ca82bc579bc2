package main

import "fmt"

// This file encodes instructions that Go's assembler lacks, from the Arm Architecture Reference Manual for
// A-profile, section C7.2. Operands are named as in the manual.

// v is a vector register, 0 to 31.
type v int

// three returns the encoding of an instruction with three registers, and two that of one with two.
func three(code uint32, d, n, m v) uint32 { return code | uint32(m)<<16 | uint32(n)<<5 | uint32(d) }
func two(code uint32, d, n v) uint32      { return three(code, d, n, 0) }

// element returns the encoding of an instruction whose last operand is the 32-bit element i < 4 of m.
func element(code uint32, d, n, m v, i int) uint32 {
	return three(code, d, n, m) | uint32(i&1)<<21 | uint32(i>>1)<<11
}

// emit writes an instruction as its encoding, with the assembly text as a comment.
func (p *program) emit(code uint32, format string, args ...any) {
	p.line("WORD $%#08x // "+format, append([]any{code}, args...)...)
}

// sdot multiplies the four signed bytes of each 32-bit lane of n by the four of element i of m and adds the
// products to the lane of d.
func (p *program) sdot(d, n, m v, i int) {
	p.emit(element(0x4f80e000, d, n, m, i), "sdot v%d.4s, v%d.16b, v%d.4b[%d]", d, n, m, i)
}

func (p *program) scvtf(d, n v) { p.emit(two(0x4e21d800, d, n), "scvtf v%d.4s, v%d.4s", d, n) }

// fcvtl converts the four float16 in the low half of n to float32.
func (p *program) fcvtl(d, n v) { p.emit(two(0x0e217800, d, n), "fcvtl v%d.4s, v%d.4h", d, n) }

func (p *program) fmul(d, n, m v) {
	p.emit(three(0x6e20dc00, d, n, m), "fmul v%d.4s, v%d.4s, v%d.4s", d, n, m)
}

func (p *program) fmulFirst(d, n, m v) {
	p.emit(element(0x4f809000, d, n, m, 0), "fmul v%d.4s, v%d.4s, v%d.s[0]", d, n, m)
}

func (p *program) fadd(d, n, m v) {
	p.emit(three(0x4e20d400, d, n, m), "fadd v%d.4s, v%d.4s, v%d.4s", d, n, m)
}

func (p *program) fsub(d, n, m v) {
	p.emit(three(0x4ea0d400, d, n, m), "fsub v%d.4s, v%d.4s, v%d.4s", d, n, m)
}

// widen extends the low four bytes of d to 32-bit lanes.
func (p *program) widen(d v, signed bool) {
	if signed {
		p.emit(two(0x0f08a400, d, d), "sshll v%d.8h, v%d.8b, #0", d, d)
		p.emit(two(0x0f10a400, d, d), "sshll v%d.4s, v%d.4h, #0", d, d)
		return
	}
	p.emit(two(0x2f08a400, d, d), "ushll v%d.8h, v%d.8b, #0", d, d)
	p.emit(two(0x2f10a400, d, d), "ushll v%d.4s, v%d.4h, #0", d, d)
}

// line writes a line of a function.
func (p *program) line(format string, args ...any) { fmt.Fprintf(&p.code, "\t"+format+"\n", args...) }

func (p *program) label(name string) { fmt.Fprintf(&p.code, "\n%s:\n", name) }
