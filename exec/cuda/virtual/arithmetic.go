package virtual

import (
	"math"
	"math/bits"

	"pesti/exec/cuda/virtual/ptx"
)

// operations are the instructions that process each lane independently. The function's type determines
// its register operands; a function that returns bits sets a predicate. A function computes all lanes;
// results of inactive lanes are discarded.
var operations = merged(wordOperations, longOperations, floatOperations, halfOperations, wideOperations)

func merged(tables ...map[string]any) map[string]any {
	all := map[string]any{}
	for _, t := range tables {
		for name, f := range t {
			all[name] = f
		}
	}
	return all
}

// arithmetic compiles an instruction of the table.
func (c *compiler) arithmetic(in *ptx.Instr) (func(w *warp), error) {
	f, ok := operations[without(in, "rn")]
	if !ok {
		return nil, ptx.Errorf(in.Line, "instruction %s is not supported", in.Opcode())
	}
	r := reader{c: c, in: in}
	var run func(w *warp)
	switch f := f.(type) {
	case func(d, a *lanes):
		d, a := r.word(0), r.word(1)
		run = func(w *warp) { f(w.put(d), &w.words[a]); w.done(d) }
	case func(d, a, b *lanes):
		d, a, b := r.word(0), r.word(1), r.word(2)
		run = func(w *warp) {
			if w.mask == w.alive {
				f(&w.words[d], &w.words[a], &w.words[b])
				return
			}
			f(&w.spareWord, &w.words[a], &w.words[b])
			w.blend(&w.words[d], &w.spareWord)
		}
	case func(d, a, b, c *lanes):
		d, a, b, c := r.word(0), r.word(1), r.word(2), r.word(3)
		run = func(w *warp) {
			if w.mask == w.alive {
				f(&w.words[d], &w.words[a], &w.words[b], &w.words[c])
				return
			}
			f(&w.spareWord, &w.words[a], &w.words[b], &w.words[c])
			w.blend(&w.words[d], &w.spareWord)
		}
	case func(d *longs, a, b *lanes):
		d, a, b := r.long(0), r.word(1), r.word(2)
		run = func(w *warp) { f(w.putLong(d), &w.words[a], &w.words[b]); w.doneLong(d) }
	case func(d *longs, a, b *lanes, c *longs):
		d, a, b, c := r.long(0), r.word(1), r.word(2), r.long(3)
		run = func(w *warp) { f(w.putLong(d), &w.words[a], &w.words[b], &w.longs[c]); w.doneLong(d) }
	case func(d, a *longs):
		d, a := r.long(0), r.long(1)
		run = func(w *warp) { f(w.putLong(d), &w.longs[a]); w.doneLong(d) }
	case func(d, a, b *longs):
		d, a, b := r.long(0), r.long(1), r.long(2)
		run = func(w *warp) { f(w.putLong(d), &w.longs[a], &w.longs[b]); w.doneLong(d) }
	case func(d, a, b, c *longs):
		d, a, b, c := r.long(0), r.long(1), r.long(2), r.long(3)
		run = func(w *warp) { f(w.putLong(d), &w.longs[a], &w.longs[b], &w.longs[c]); w.doneLong(d) }
	case func(d, a *longs, b *lanes):
		d, a, b := r.long(0), r.long(1), r.word(2)
		run = func(w *warp) { f(w.putLong(d), &w.longs[a], &w.words[b]); w.doneLong(d) }
	case func(d *lanes, a *longs):
		d, a := r.word(0), r.long(1)
		run = func(w *warp) { f(w.put(d), &w.longs[a]); w.done(d) }
	}
	return run, r.err
}

// A reader reads operands and keeps the first error. Operand 0 is the destination.
type reader struct {
	c   *compiler
	in  *ptx.Instr
	err error
}

func (r *reader) operand(i int) *ptx.Operand {
	if i < len(r.in.Args) {
		return &r.in.Args[i]
	}
	r.keep(unknown(r.in))
	return &ptx.Operand{}
}

func (r *reader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) word(i int) int {
	o := r.operand(i)
	if i == 0 {
		slot, err := r.c.destination(r.in, o, ptx.Word)
		r.keep(err)
		return slot
	}
	slot, err := r.c.word(r.in, o)
	r.keep(err)
	return slot
}

func (r *reader) long(i int) int {
	o := r.operand(i)
	if i == 0 {
		slot, err := r.c.destination(r.in, o, ptx.Long)
		r.keep(err)
		return slot
	}
	slot, err := r.c.long(r.in, o)
	r.keep(err)
	return slot
}

func (r *reader) predicate(i int) guard {
	g, err := r.c.predicate(r.in, r.operand(i))
	r.keep(err)
	return g
}

func (r *reader) immediate(i int) uint64 {
	o := r.operand(i)
	if o.Kind != ptx.Immediate || o.Float {
		r.keep(unknown(r.in))
	}
	return o.Value
}

// count checks the number of operands.
func (r *reader) count(n int) {
	if len(r.in.Args) != n {
		r.keep(unknown(r.in))
	}
}

// of1, of2 and of3 make operations on registers of either width from a function of one lane. They are
// slow, and used for rare instructions.
func of1[T uint32 | uint64](f func(a T) T) func(d, a *[32]T) {
	return func(d, a *[32]T) {
		for i := range d {
			d[i] = f(a[i])
		}
	}
}

func of2[T uint32 | uint64](f func(a, b T) T) func(d, a, b *[32]T) {
	return func(d, a, b *[32]T) {
		for i := range d {
			d[i] = f(a[i], b[i])
		}
	}
}

func of3[T uint32 | uint64](f func(a, b, c T) T) func(d, a, b, c *[32]T) {
	return func(d, a, b, c *[32]T) {
		for i := range d {
			d[i] = f(a[i], b[i], c[i])
		}
	}
}

// named gives one operation several names.
func named(table map[string]any, f any, names ...string) {
	for _, n := range names {
		table[n] = f
	}
}

// The loops of the most frequent instructions are unrolled by hand, four lanes at a time, which halves
// their time: the Go compiler does not unroll loops.

func add32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] + b[i]
		d[i+1] = a[i+1] + b[i+1]
		d[i+2] = a[i+2] + b[i+2]
		d[i+3] = a[i+3] + b[i+3]
	}
}

func sub32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] - b[i]
		d[i+1] = a[i+1] - b[i+1]
		d[i+2] = a[i+2] - b[i+2]
		d[i+3] = a[i+3] - b[i+3]
	}
}

func mul32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] * b[i]
		d[i+1] = a[i+1] * b[i+1]
		d[i+2] = a[i+2] * b[i+2]
		d[i+3] = a[i+3] * b[i+3]
	}
}

func mad32(d, a, b, c *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i]*b[i] + c[i]
		d[i+1] = a[i+1]*b[i+1] + c[i+1]
		d[i+2] = a[i+2]*b[i+2] + c[i+2]
		d[i+3] = a[i+3]*b[i+3] + c[i+3]
	}
}

func and32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] & b[i]
		d[i+1] = a[i+1] & b[i+1]
		d[i+2] = a[i+2] & b[i+2]
		d[i+3] = a[i+3] & b[i+3]
	}
}

func or32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] | b[i]
		d[i+1] = a[i+1] | b[i+1]
		d[i+2] = a[i+2] | b[i+2]
		d[i+3] = a[i+3] | b[i+3]
	}
}

func xor32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] ^ b[i]
		d[i+1] = a[i+1] ^ b[i+1]
		d[i+2] = a[i+2] ^ b[i+2]
		d[i+3] = a[i+3] ^ b[i+3]
	}
}

func not32(d, a *lanes) {
	for i := range d {
		d[i] = ^a[i]
	}
}

func shl32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] << b[i]
		d[i+1] = a[i+1] << b[i+1]
		d[i+2] = a[i+2] << b[i+2]
		d[i+3] = a[i+3] << b[i+3]
	}
}

func shrU32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] >> b[i]
		d[i+1] = a[i+1] >> b[i+1]
		d[i+2] = a[i+2] >> b[i+2]
		d[i+3] = a[i+3] >> b[i+3]
	}
}

func shrS32(d, a, b *lanes) {
	for i := range d {
		d[i] = uint32(int32(a[i]) >> b[i])
	}
}

// divU32 and its kind divide as a GPU does: division by zero gives all ones.
func divU32(a, b uint32) uint32 {
	if b == 0 {
		return 0xffffffff
	}
	return a / b
}

func divS32(a, b uint32) uint32 {
	if b == 0 {
		return 0xffffffff
	}
	return uint32(int32(a) / int32(b))
}

func remU32(a, b uint32) uint32 {
	if b == 0 {
		return a
	}
	return a % b
}

func remS32(a, b uint32) uint32 {
	if b == 0 {
		return a
	}
	return uint32(int32(a) % int32(b))
}

func absS32(a uint32) uint32 {
	s := uint32(int32(a) >> 31)
	return (a ^ s) - s
}

func dp4aSS(d, a, b, c *lanes) {
	for i := range d {
		x, y := a[i], b[i]
		d[i] = c[i] +
			uint32(int32(int8(x))*int32(int8(y))) + uint32(int32(int8(x>>8))*int32(int8(y>>8))) +
			uint32(int32(int8(x>>16))*int32(int8(y>>16))) + uint32((int32(x)>>24)*(int32(y)>>24))
	}
}

func dp4aUS(d, a, b, c *lanes) {
	for i := range d {
		x, y := a[i], b[i]
		d[i] = c[i] +
			uint32(int32(x&0xff)*int32(int8(y))) + uint32(int32(x>>8&0xff)*int32(int8(y>>8))) +
			uint32(int32(x>>16&0xff)*int32(int8(y>>16))) + uint32(int32(x>>24)*(int32(y)>>24))
	}
}

func dp4aSU(d, a, b, c *lanes) { dp4aUS(d, b, a, c) }

func dp4aUU(d, a, b, c *lanes) {
	for i := range d {
		x, y := a[i], b[i]
		d[i] = c[i] + (x&0xff)*(y&0xff) + (x>>8&0xff)*(y>>8&0xff) + (x>>16&0xff)*(y>>16&0xff) + (x>>24)*(y>>24)
	}
}

// bfe extracts the bit field of c bits from bit b on. b and c have 8 bits.
func bfeU32(d, a, b, c *lanes) {
	for i := range d {
		d[i] = uint32(uint64(a[i]) >> (b[i] & 0xff) & (1<<(c[i]&0xff) - 1))
	}
}

func bfeS32(a, b, c uint32) uint32 {
	at, n := b&0xff, min(c&0xff, 64)
	if n == 0 {
		return 0
	}
	return uint32(int64(int32(a)) >> at << (64 - n) >> (64 - n))
}

// bfi inserts a bit field into b, see the PTX instruction.
func bfi32(a, b, at, n uint32) uint32 {
	m := uint32(span(uint64(at&0xff), uint64(n&0xff)))
	return b&^m | a<<(at&0xff)&m
}

func bfi64(a, b uint64, at, n uint32) uint64 {
	m := span(uint64(at&0xff), uint64(n&0xff))
	return b&^m | a<<(at&0xff)&m
}

func prmt(d, a, b, c *lanes) {
	for i := range d {
		v, s := uint64(b[i])<<32|uint64(a[i]), c[i]
		x := uint32(v>>(s&7*8))&0xff | uint32(v>>(s>>4&7*8))&0xff<<8 |
			uint32(v>>(s>>8&7*8))&0xff<<16 | uint32(v>>(s>>12&7*8))<<24
		if s&0x8888 != 0 {
			x = prmtSigns(x, s)
		}
		d[i] = x
	}
}

// prmtSigns replicates the sign of a byte if the selector's high bit is set.
func prmtSigns(x, s uint32) uint32 {
	for j := range uint32(4) {
		if s>>(4*j+3)&1 != 0 {
			x = x&^(0xff<<(8*j)) | uint32(int32(x<<(24-8*j))>>31)>>24<<(8*j)
		}
	}
	return x
}

func funnelLeft(a, b, c uint32) uint32  { return uint32((uint64(b)<<32 | uint64(a)) << (c & 31) >> 32) }
func funnelRight(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) >> (c & 31)) }
func funnelLeftClamp(a, b, c uint32) uint32 {
	return uint32((uint64(b)<<32 | uint64(a)) << min(c, 32) >> 32)
}
func funnelRightClamp(a, b, c uint32) uint32 {
	return uint32((uint64(b)<<32 | uint64(a)) >> min(c, 32))
}

var wordOperations = func() map[string]any {
	t := map[string]any{
		"not.b32": not32, "not.b16": of1(func(a uint32) uint32 { return ^a & 0xffff }),
		"cnot.b32": of1(func(a uint32) uint32 { return bit(a == 0) }),
		"neg.s32":  of1(func(a uint32) uint32 { return -a }),
		"abs.s32":  of1(absS32),
		"shr.u32":  shrU32, "shr.b32": shrU32, "shr.s32": shrS32, "shl.b32": shl32,
		"shr.u16": shrU32, "shr.b16": shrU32,
		"shr.s16": of2(func(a, b uint32) uint32 { return uint32(int32(int16(a))>>b) & 0xffff }),
		"shl.b16": of2(func(a, b uint32) uint32 { return a << b & 0xffff }),
		"div.u32": of2(divU32), "div.s32": of2(divS32), "rem.u32": of2(remU32), "rem.s32": of2(remS32),
		"div.u16":    of2(func(a, b uint32) uint32 { return divU32(a, b) & 0xffff }),
		"rem.u16":    of2(func(a, b uint32) uint32 { return remU32(a, b) & 0xffff }),
		"mul.hi.u32": of2(func(a, b uint32) uint32 { return uint32(uint64(a) * uint64(b) >> 32) }),
		"mul.hi.s32": of2(func(a, b uint32) uint32 { return uint32(int64(int32(a)) * int64(int32(b)) >> 32) }),
		"mad.hi.u32": of3(func(a, b, c uint32) uint32 { return uint32(uint64(a)*uint64(b)>>32) + c }),
		"mad.hi.s32": of3(func(a, b, c uint32) uint32 { return uint32(int64(int32(a))*int64(int32(b))>>32) + c }),
		"min.u32":    of2(func(a, b uint32) uint32 { return min(a, b) }),
		"max.u32":    of2(func(a, b uint32) uint32 { return max(a, b) }),
		"min.s32":    of2(func(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) }),
		"max.s32":    of2(func(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) }),
		"min.u16":    of2(func(a, b uint32) uint32 { return min(a, b) }),
		"max.u16":    of2(func(a, b uint32) uint32 { return max(a, b) }),
		"min.s16":    of2(func(a, b uint32) uint32 { return uint32(uint16(min(int16(a), int16(b)))) }),
		"max.s16":    of2(func(a, b uint32) uint32 { return uint32(uint16(max(int16(a), int16(b)))) }),
		"neg.s16":    of1(func(a uint32) uint32 { return -a & 0xffff }),
		"abs.s16":    of1(func(a uint32) uint32 { return absS32(uint32(int32(int16(a)))) & 0xffff }),
		"popc.b32":   of1(func(a uint32) uint32 { return uint32(bits.OnesCount32(a)) }),
		"clz.b32":    of1(func(a uint32) uint32 { return uint32(bits.LeadingZeros32(a)) }),
		"brev.b32":   of1(bits.Reverse32),
		"bfind.u32":  of1(func(a uint32) uint32 { return uint32(bits.Len32(a) - 1) }),
		"bfind.s32":  of1(func(a uint32) uint32 { return uint32(bits.Len32(a^uint32(int32(a)>>31)) - 1) }),
		"bfe.u32":    bfeU32, "bfe.s32": of3(bfeS32), "prmt.b32": prmt,
		"shf.l.wrap.b32": of3(funnelLeft), "shf.r.wrap.b32": of3(funnelRight),
		"shf.l.clamp.b32": of3(funnelLeftClamp), "shf.r.clamp.b32": of3(funnelRightClamp),
		"sad.u32": of3(func(a, b, c uint32) uint32 { return max(a, b) - min(a, b) + c }),
		"sad.s32": of3(func(a, b, c uint32) uint32 {
			return uint32(max(int32(a), int32(b))) - uint32(min(int32(a), int32(b))) + c
		}),
		"dp4a.s32.s32": dp4aSS, "dp4a.u32.s32": dp4aUS, "dp4a.s32.u32": dp4aSU, "dp4a.u32.u32": dp4aUU,
		"mul24.lo.u32": of2(func(a, b uint32) uint32 { return (a & 0xffffff) * (b & 0xffffff) }),
	}
	named(t, add32, "add.s32", "add.u32")
	named(t, sub32, "sub.s32", "sub.u32")
	named(t, mul32, "mul.lo.s32", "mul.lo.u32")
	named(t, mad32, "mad.lo.s32", "mad.lo.u32")
	named(t, and32, "and.b32", "and.b16")
	named(t, or32, "or.b32", "or.b16")
	named(t, xor32, "xor.b32", "xor.b16")
	named(t, of2(func(a, b uint32) uint32 { return (a + b) & 0xffff }), "add.s16", "add.u16")
	named(t, of2(func(a, b uint32) uint32 { return (a - b) & 0xffff }), "sub.s16", "sub.u16")
	named(t, of2(func(a, b uint32) uint32 { return a * b & 0xffff }), "mul.lo.s16", "mul.lo.u16")
	named(t, of3(func(a, b, c uint32) uint32 { return (a*b + c) & 0xffff }), "mad.lo.s16", "mad.lo.u16")
	return t
}()

func add64(d, a, b *longs) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] + b[i]
		d[i+1] = a[i+1] + b[i+1]
		d[i+2] = a[i+2] + b[i+2]
		d[i+3] = a[i+3] + b[i+3]
	}
}

func sub64(d, a, b *longs) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] - b[i]
		d[i+1] = a[i+1] - b[i+1]
		d[i+2] = a[i+2] - b[i+2]
		d[i+3] = a[i+3] - b[i+3]
	}
}

func mul64(d, a, b *longs) {
	for i := range d {
		d[i] = a[i] * b[i]
	}
}

func shl64(d, a *longs, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = a[i] << b[i]
		d[i+1] = a[i+1] << b[i+1]
		d[i+2] = a[i+2] << b[i+2]
		d[i+3] = a[i+3] << b[i+3]
	}
}

func shrU64(d, a *longs, b *lanes) {
	for i := range d {
		d[i] = a[i] >> b[i]
	}
}

func shrS64(d, a *longs, b *lanes) {
	for i := range d {
		d[i] = uint64(int64(a[i]) >> b[i])
	}
}

func divU64(a, b uint64) uint64 {
	if b == 0 {
		return math.MaxUint64
	}
	return a / b
}

func divS64(a, b uint64) uint64 {
	if b == 0 {
		return math.MaxUint64
	}
	return uint64(int64(a) / int64(b))
}

func remU64(a, b uint64) uint64 {
	if b == 0 {
		return a
	}
	return a % b
}

func remS64(a, b uint64) uint64 {
	if b == 0 {
		return a
	}
	return uint64(int64(a) % int64(b))
}

var longOperations = func() map[string]any {
	t := map[string]any{
		"and.b64": of2(func(a, b uint64) uint64 { return a & b }),
		"or.b64":  of2(func(a, b uint64) uint64 { return a | b }),
		"xor.b64": of2(func(a, b uint64) uint64 { return a ^ b }),
		"not.b64": of1(func(a uint64) uint64 { return ^a }),
		"neg.s64": of1(func(a uint64) uint64 { return -a }),
		"abs.s64": of1(func(a uint64) uint64 { return uint64(max(int64(a), -int64(a))) }),
		"shl.b64": shl64, "shr.u64": shrU64, "shr.b64": shrU64, "shr.s64": shrS64,
		"div.u64": of2(divU64), "div.s64": of2(divS64), "rem.u64": of2(remU64), "rem.s64": of2(remS64),
		"min.u64":    of2(func(a, b uint64) uint64 { return min(a, b) }),
		"max.u64":    of2(func(a, b uint64) uint64 { return max(a, b) }),
		"min.s64":    of2(func(a, b uint64) uint64 { return uint64(min(int64(a), int64(b))) }),
		"max.s64":    of2(func(a, b uint64) uint64 { return uint64(max(int64(a), int64(b))) }),
		"brev.b64":   of1(bits.Reverse64),
		"mul.hi.u64": of2(func(a, b uint64) uint64 { hi, _ := bits.Mul64(a, b); return hi }),
		"mul.hi.s64": of2(func(a, b uint64) uint64 {
			hi, _ := bits.Mul64(a, b)
			return hi - uint64(int64(a)>>63)&b - uint64(int64(b)>>63)&a
		}),
	}
	named(t, add64, "add.s64", "add.u64")
	named(t, sub64, "sub.s64", "sub.u64")
	named(t, mul64, "mul.lo.s64", "mul.lo.u64")
	named(t, of3(func(a, b, c uint64) uint64 { return a*b + c }), "mad.lo.s64", "mad.lo.u64")
	return t
}()

func mulWideU(d *longs, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = uint64(a[i]) * uint64(b[i])
		d[i+1] = uint64(a[i+1]) * uint64(b[i+1])
		d[i+2] = uint64(a[i+2]) * uint64(b[i+2])
		d[i+3] = uint64(a[i+3]) * uint64(b[i+3])
	}
}

func mulWideS(d *longs, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = uint64(int64(int32(a[i])) * int64(int32(b[i])))
		d[i+1] = uint64(int64(int32(a[i+1])) * int64(int32(b[i+1])))
		d[i+2] = uint64(int64(int32(a[i+2])) * int64(int32(b[i+2])))
		d[i+3] = uint64(int64(int32(a[i+3])) * int64(int32(b[i+3])))
	}
}

func madWideU(d *longs, a, b *lanes, c *longs) {
	for i := range d {
		d[i] = uint64(a[i])*uint64(b[i]) + c[i]
	}
}

func madWideS(d *longs, a, b *lanes, c *longs) {
	for i := range d {
		d[i] = uint64(int64(int32(a[i]))*int64(int32(b[i]))) + c[i]
	}
}

// wideOperations have a result whose size differs from that of their operands.
var wideOperations = map[string]any{
	"mul.wide.u32": mulWideU, "mul.wide.s32": mulWideS, "mad.wide.u32": madWideU, "mad.wide.s32": madWideS,
	"mul.wide.u16": of2(func(a, b uint32) uint32 { return a * b }),
	"mul.wide.s16": of2(func(a, b uint32) uint32 { return uint32(int32(int16(a)) * int32(int16(b))) }),
	"mad.wide.u16": of3(func(a, b, c uint32) uint32 { return a*b + c }),
	"mad.wide.s16": of3(func(a, b, c uint32) uint32 { return uint32(int32(int16(a))*int32(int16(b))) + c }),
	"popc.b64": func(d *lanes, a *longs) {
		for i := range d {
			d[i] = uint32(bits.OnesCount64(a[i]))
		}
	},
	"clz.b64": func(d *lanes, a *longs) {
		for i := range d {
			d[i] = uint32(bits.LeadingZeros64(a[i]))
		}
	},
	"bfind.u64": func(d *lanes, a *longs) {
		for i := range d {
			d[i] = uint32(bits.Len64(a[i]) - 1)
		}
	},
}

// bit is 1 for true.
func bit(b bool) uint32 {
	var n uint32
	if b {
		n = 1
	}
	return n
}
