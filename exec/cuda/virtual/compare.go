package virtual

import (
	"strings"

	"pesti/exec/cuda/virtual/ptx"
)

// A comparison gives a bit for each lane.
type (
	wordComparison func(a, b *lanes) uint32
	longComparison func(a, b *longs) uint32
)

func eq32(a, b *lanes) (m uint32) {
	for i := range a {
		m |= bit(a[i] == b[i]) << i
	}
	return
}

func ltU32(a, b *lanes) (m uint32) {
	for i := range a {
		m |= bit(a[i] < b[i]) << i
	}
	return
}

func ltS32(a, b *lanes) (m uint32) {
	for i := range a {
		m |= bit(int32(a[i]) < int32(b[i])) << i
	}
	return
}

func ltS16(a, b *lanes) (m uint32) {
	for i := range a {
		m |= bit(int16(a[i]) < int16(b[i])) << i
	}
	return
}

func eqF32(a, b *lanes) (m uint32) {
	for i := range a {
		m |= bit(f32(a[i]) == f32(b[i])) << i
	}
	return
}

func ltF32(a, b *lanes) (m uint32) {
	for i := range a {
		m |= bit(f32(a[i]) < f32(b[i])) << i
	}
	return
}

func nanF32(a, b *lanes) (m uint32) {
	for i := range a {
		x, y := f32(a[i]), f32(b[i])
		m |= bit(x != x || y != y) << i
	}
	return
}

// decoded returns a comparison of 16-bit floats.
func decoded(decode func(uint32) uint32, f wordComparison) wordComparison {
	return func(a, b *lanes) uint32 {
		var x, y lanes
		for i := range a {
			x[i], y[i] = decode(a[i]), decode(b[i])
		}
		return f(&x, &y)
	}
}

func longBits(f func(a, b uint64) bool) longComparison {
	return func(a, b *longs) (m uint32) {
		for i := range a {
			m |= bit(f(a[i], b[i])) << i
		}
		return
	}
}

func doubleBits(f func(a, b float64) bool) longComparison {
	return longBits(func(a, b uint64) bool { return f(f64(a), f64(b)) })
}

// The basic comparisons, from which the others are derived: equal, less, and unordered.
type words3 struct{ eq, lt, nan wordComparison }
type longs3 struct{ eq, lt, nan longComparison }

var wordTypes = map[string]words3{
	"b16": {eq32, nil, nil}, "u16": {eq32, ltU32, nil}, "s16": {eq32, ltS16, nil},
	"b32": {eq32, nil, nil}, "u32": {eq32, ltU32, nil}, "s32": {eq32, ltS32, nil},
	"f32":  {eqF32, ltF32, nanF32},
	"f16":  {decoded(halfToF32, eqF32), decoded(halfToF32, ltF32), decoded(halfToF32, nanF32)},
	"bf16": {decoded(brainToF32, eqF32), decoded(brainToF32, ltF32), decoded(brainToF32, nanF32)},
}

var longTypes = map[string]longs3{
	"b64": {longBits(func(a, b uint64) bool { return a == b }), nil, nil},
	"u64": {longBits(func(a, b uint64) bool { return a == b }), longBits(func(a, b uint64) bool { return a < b }), nil},
	"s64": {longBits(func(a, b uint64) bool { return a == b }), longBits(func(a, b uint64) bool { return int64(a) < int64(b) }), nil},
	"f64": {
		doubleBits(func(a, b float64) bool { return a == b }), doubleBits(func(a, b float64) bool { return a < b }),
		doubleBits(func(a, b float64) bool { return a != a || b != b }),
	},
}

// derive returns a comparison by name, derived from the three basic ones.
func derive[R any, F ~func(a, b *R) uint32](name string, eq, lt, nan F) F {
	if name == "lo" || name == "ls" || name == "hi" || name == "hs" { // unsigned
		name = map[string]string{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}[name]
	}
	switch {
	case name == "eq":
		return eq
	case name == "ne" && nan == nil:
		return func(a, b *R) uint32 { return ^eq(a, b) }
	case name == "ne":
		return func(a, b *R) uint32 { return ^eq(a, b) &^ nan(a, b) }
	case lt == nil:
		return nil
	case name == "lt":
		return lt
	case name == "gt":
		return func(a, b *R) uint32 { return lt(b, a) }
	case nan == nil && name == "le":
		return func(a, b *R) uint32 { return ^lt(b, a) }
	case nan == nil && name == "ge":
		return func(a, b *R) uint32 { return ^lt(a, b) }
	case nan == nil:
		return nil
	}
	switch name {
	case "le":
		return func(a, b *R) uint32 { return lt(a, b) | eq(a, b) }
	case "ge":
		return func(a, b *R) uint32 { return lt(b, a) | eq(a, b) }
	case "equ":
		return func(a, b *R) uint32 { return eq(a, b) | nan(a, b) }
	case "neu":
		return func(a, b *R) uint32 { return ^eq(a, b) }
	case "ltu":
		return func(a, b *R) uint32 { return ^(lt(b, a) | eq(a, b)) }
	case "leu":
		return func(a, b *R) uint32 { return ^lt(b, a) }
	case "gtu":
		return func(a, b *R) uint32 { return ^(lt(a, b) | eq(a, b)) }
	case "geu":
		return func(a, b *R) uint32 { return ^lt(a, b) }
	case "num":
		return func(a, b *R) uint32 { return ^nan(a, b) }
	case "nan":
		return nan
	}
	return nil
}

// setp is "setp.lt.and.s32 %p|%q, a, b, %r": the result, combined with %r, and its opposite.
func (c *compiler) setp(in *ptx.Instr) (func(w *warp), error) {
	suffix := strings.Split(without(in, "ftz"), ".")[1:]
	if len(suffix) < 2 {
		return nil, unknown(in)
	}
	r := reader{c: c, in: in}
	d := r.predicate(0)
	other := guard{slot: -1}
	if parts := r.operand(0).Parts; len(parts) > 0 && parts[0].Kind != ptx.Sink {
		other = guardOf(&r, &parts[0])
	}
	combine := func(_ *warp, m uint32) uint32 { return m }
	if len(suffix) == 3 {
		p := r.predicate(3)
		switch suffix[1] {
		case "and":
			combine = func(w *warp, m uint32) uint32 { return m & w.bits(p) }
		case "or":
			combine = func(w *warp, m uint32) uint32 { return m | w.bits(p) }
		case "xor":
			combine = func(w *warp, m uint32) uint32 { return m ^ w.bits(p) }
		default:
			return nil, unknown(in)
		}
	}
	finish := func(w *warp, m uint32) {
		yes, no := combine(w, m), uint32(0)
		if other.slot >= 0 {
			no = combine(w, ^m)
			w.decide(other.slot, no)
		}
		w.decide(d.slot, yes)
	}
	if t, ok := longTypes[in.Type()]; ok {
		a, b := r.long(1), r.long(2)
		if f := derive[longs](suffix[0], t.eq, t.lt, t.nan); f != nil {
			return func(w *warp) { finish(w, f(&w.longs[a], &w.longs[b])) }, r.err
		}
	}
	if t, ok := wordTypes[in.Type()]; ok {
		a, b := r.word(1), r.word(2)
		if f := derive[lanes](suffix[0], t.eq, t.lt, t.nan); f != nil {
			if len(suffix) == 2 && other.slot < 0 {
				return func(w *warp) { w.decide(d.slot, f(&w.words[a], &w.words[b])) }, r.err
			}
			return func(w *warp) { finish(w, f(&w.words[a], &w.words[b])) }, r.err
		}
	}
	return nil, unknown(in)
}

func guardOf(r *reader, o *ptx.Operand) guard {
	g, err := r.c.predicate(r.in, o)
	r.keep(err)
	return g
}
