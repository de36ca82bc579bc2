package virtual

import (
	"math"
	"math/bits"
	"slices"
	"strings"

	"pesti/exec/cuda/virtual/ptx"
)

// conversions are the most frequent conversions, with optimized loops.
var conversions = map[string]any{
	"cvt.u64.u32": func(d *longs, a *lanes) {
		for i := 0; i < 32; i += 4 {
			d[i] = uint64(a[i])
			d[i+1] = uint64(a[i+1])
			d[i+2] = uint64(a[i+2])
			d[i+3] = uint64(a[i+3])
		}
	},
	"cvt.s64.s32": func(d *longs, a *lanes) {
		for i := range d {
			d[i] = uint64(int32(a[i]))
		}
	},
	"cvt.u32.u64": func(d *lanes, a *longs) {
		for i := range d {
			d[i] = uint32(a[i])
		}
	},
	"cvt.rn.f32.s32": func(d, a *lanes) {
		for i := 0; i < 32; i += 4 {
			d[i] = b32(float32(int32(a[i])))
			d[i+1] = b32(float32(int32(a[i+1])))
			d[i+2] = b32(float32(int32(a[i+2])))
			d[i+3] = b32(float32(int32(a[i+3])))
		}
	},
	"cvt.rn.f32.u32": func(d, a *lanes) {
		for i := range d {
			d[i] = b32(float32(a[i]))
		}
	},
	"cvt.f32.f16":     of1(halfToF32),
	"cvt.f32.bf16":    of1(brainToF32),
	"cvt.rn.f16.f32":  of1(f32ToHalf),
	"cvt.rn.bf16.f32": of1(f32ToBrain),
}

// An integer type.
type integer struct {
	bits   int
	signed bool
}

var integers = map[string]integer{
	"u8": {8, false}, "u16": {16, false}, "u32": {32, false}, "u64": {64, false},
	"s8": {8, true}, "s16": {16, true}, "s32": {32, true}, "s64": {64, true},
	"b8": {8, false}, "b16": {16, false}, "b32": {32, false}, "b64": {64, false},
}

// extend returns the low bits of a register as a number.
func (t integer) extend(v uint64) uint64 {
	s := 64 - t.bits
	if t.signed {
		return uint64(int64(v<<s) >> s)
	}
	return v << s >> s
}

// clamp saturates a number of another type to the range of this one.
func (t integer) clamp(v uint64, from integer) uint64 {
	negative := from.signed && int64(v) < 0
	switch {
	case t.signed && negative:
		return uint64(max(int64(v), -1<<(t.bits-1)))
	case t.signed:
		return min(v, 1<<(t.bits-1)-1)
	case negative:
		return 0
	}
	return min(v, ^uint64(0)>>(64-t.bits))
}

// round converts a float without fraction to an integer. NaN gives 0.
func (t integer) round(x float64) uint64 {
	low, high := 0.0, math.Ldexp(1, t.bits)
	if t.signed {
		low, high = -math.Ldexp(1, t.bits-1), math.Ldexp(1, t.bits-1)
	}
	switch {
	case x != x:
		return 0
	case x <= low:
		if t.signed {
			return uint64(int64(low))
		}
		return 0
	case x >= high:
		return ^uint64(0) >> (64 - t.bits + int(bit(t.signed)))
	case t.signed:
		return uint64(int64(x))
	}
	return uint64(x)
}

// floats has functions to decode and encode the float types, by name.
var floats = map[string]struct {
	read  func(v uint64) float64
	write func(x float64, r rounding, finite bool) uint64
}{
	"f64": {f64, func(x float64, _ rounding, _ bool) uint64 { return b64(x) }},
	"f32": {
		func(v uint64) float64 { return float64(f32(uint32(v))) },
		func(x float64, r rounding, _ bool) uint64 { return uint64(b32(toF32(x, r))) },
	},
	"f16": {
		func(v uint64) float64 { return half.decode(uint32(v)) },
		func(x float64, r rounding, finite bool) uint64 { return uint64(half.encode(x, r, finite)) },
	},
	"bf16": {
		func(v uint64) float64 { return brain.decode(uint32(v)) },
		func(x float64, r rounding, finite bool) uint64 { return uint64(brain.encode(x, r, finite)) },
	},
}

// Roundings to an integer.
var integral = map[string]func(float64) float64{
	"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil,
}

// cvt is "cvt.rn.satfinite.f16.f32": rounding, flags, type of the result, type of the operand.
func (c *compiler) cvt(in *ptx.Instr) (func(w *warp), error) {
	n := len(in.Suffix)
	if n < 2 {
		return nil, unknown(in)
	}
	if strings.HasSuffix(in.Suffix[n-2], "x2") || strings.HasSuffix(in.Suffix[n-1], "x2") {
		return c.cvtPairs(in)
	}
	r := reader{c: c, in: in}
	r.count(2)
	to, from := in.Suffix[n-2], in.Suffix[n-1]
	f, err := conversion(in, to, from, in.Suffix[:n-2])
	if err != nil {
		return nil, err
	}
	dLong := r.operand(0).Class == ptx.Long
	o := r.operand(1)
	aLong := o.Kind == ptx.Register && o.Class == ptx.Long || o.Kind != ptx.Register && ptx.Size(from) == 8
	fast := conversions[in.Opcode()]
	if o.Kind == ptx.Register && ptx.Size(o.Type) < ptx.Size(from) || r.err == nil && ptx.Size(r.operand(0).Type) < ptx.Size(to) {
		return nil, ptx.Errorf(in.Line, "%s: a register smaller than the type", in.Opcode())
	}
	shortResult := ptx.Size(r.operand(0).Type) == 2
	switch {
	case dLong && aLong:
		d, a := r.long(0), r.long(1)
		return func(w *warp) {
			x, y := w.putLong(d), &w.longs[a]
			for i := range x {
				x[i] = f(y[i])
			}
			w.doneLong(d)
		}, r.err
	case dLong:
		d, a := r.long(0), r.word(1)
		if f, ok := fast.(func(*longs, *lanes)); ok {
			return func(w *warp) { f(w.putLong(d), &w.words[a]); w.doneLong(d) }, r.err
		}
		return func(w *warp) {
			x, y := w.putLong(d), &w.words[a]
			for i := range x {
				x[i] = f(uint64(y[i]))
			}
			w.doneLong(d)
		}, r.err
	case aLong:
		d, a := r.word(0), r.long(1)
		if f, ok := fast.(func(*lanes, *longs)); ok {
			return func(w *warp) { f(w.put(d), &w.longs[a]); w.done(d) }, r.err
		}
		return func(w *warp) {
			x, y := w.put(d), &w.longs[a]
			for i := range x {
				x[i] = shorten(f(y[i]), shortResult)
			}
			w.done(d)
		}, r.err
	}
	d, a := r.word(0), r.word(1)
	if f, ok := fast.(func(*lanes, *lanes)); ok {
		return func(w *warp) { f(w.put(d), &w.words[a]); w.done(d) }, r.err
	}
	return func(w *warp) {
		x, y := w.put(d), &w.words[a]
		for i := range x {
			x[i] = shorten(f(uint64(y[i])), shortResult)
		}
		w.done(d)
	}, r.err
}

func shorten(v uint64, short bool) uint32 {
	if short {
		return uint32(uint16(v))
	}
	return uint32(v)
}

// conversion returns the conversion of one lane.
func conversion(in *ptx.Instr, to, from string, flags []string) (func(v uint64) uint64, error) {
	has := func(flag string) bool { return slices.Contains(flags, flag) }
	direction := nearest
	var whole func(float64) float64
	for _, s := range flags {
		if r, ok := roundings[s]; ok {
			direction = r
		} else if f, ok := integral[s]; ok {
			whole = f
		} else if s != "sat" && s != "satfinite" && s != "ftz" {
			return nil, unknown(in)
		}
	}
	ti, toInteger := integers[to]
	fi, fromInteger := integers[from]
	tf, toFloat := floats[to]
	ff, fromFloat := floats[from]
	switch {
	case !toInteger && !toFloat || !fromInteger && !fromFloat:
		return nil, unknown(in)
	case toInteger && fromInteger && has("sat"):
		return func(v uint64) uint64 { return ti.extend(ti.clamp(fi.extend(v), fi)) }, nil
	case toInteger && fromInteger:
		return func(v uint64) uint64 { return ti.extend(fi.extend(v)) }, nil
	case toInteger && whole == nil:
		return nil, unknown(in)
	case toInteger:
		return func(v uint64) uint64 { return ti.round(whole(ff.read(v))) }, nil
	case fromInteger && fi.bits == 64 && to != "f64" || fromInteger && to == "f64" && fi.bits == 64 && direction != nearest:
		if direction != nearest {
			return nil, unknown(in)
		}
		return func(v uint64) uint64 { return tf.write(oddFloat(v, fi.signed), nearest, false) }, nil
	case fromInteger && fi.signed:
		return func(v uint64) uint64 { return tf.write(float64(int64(fi.extend(v))), direction, false) }, nil
	case fromInteger:
		return func(v uint64) uint64 { return tf.write(float64(fi.extend(v)), direction, false) }, nil
	}
	if has("satfinite") && ptx.Size(to) != 2 {
		return nil, unknown(in)
	}
	small, saturate, finite := has("ftz"), has("sat"), has("satfinite")
	return func(v uint64) uint64 {
		if small && from == "f32" {
			v = uint64(flush(uint32(v)))
		}
		x := ff.read(v)
		if whole != nil {
			x = whole(x)
		}
		if saturate {
			if !(x > 0) {
				x = 0
			}
			x = min(x, 1)
		}
		v = tf.write(x, direction, finite)
		if small && to == "f32" {
			v = uint64(flush(uint32(v)))
		}
		return v
	}, nil
}

// oddFloat converts a 64-bit integer to float64 with rounding to odd, see sumOdd.
func oddFloat(v uint64, signed bool) float64 {
	negative := signed && int64(v) < 0
	if negative {
		v = -v
	}
	if n := bits.Len64(v); n > 53 {
		lost := v & (1<<(n-53) - 1)
		v &^= 1<<(n-53) - 1
		if lost != 0 {
			v |= 1 << (n - 53)
		}
	}
	if negative {
		return -float64(v)
	}
	return float64(v)
}

// packed are the formats with two numbers in a register.
var packed = map[string]narrow{"f16x2": half, "bf16x2": brain, "e4m3x2": fp8e4m3, "e5m2x2": fp8e5m2}

// cvtPairs is "cvt.rn.f16x2.f32 d, a, b" with a in the upper part, and "cvt.rn.f16x2.e4m3x2 d, a".
func (c *compiler) cvtPairs(in *ptx.Instr) (func(w *warp), error) {
	n := len(in.Suffix)
	direction, finite, positive := nearest, false, false
	for _, s := range in.Suffix[:n-2] {
		switch s {
		case "rn":
		case "rz":
			direction = towardZero
		case "satfinite":
			finite = true
		case "relu":
			positive = true
		default:
			return nil, unknown(in)
		}
	}
	to, ok := packed[in.Suffix[n-2]]
	if !ok {
		return nil, unknown(in)
	}
	write := func(x float64) uint32 {
		if positive && (x < 0 || x != x) {
			x = 0
		}
		return to.encode(x, direction, finite)
	}
	shift := to.bits()
	r := reader{c: c, in: in}
	if from, ok := packed[in.Suffix[n-1]]; ok {
		r.count(2)
		d, a := r.word(0), r.word(1)
		if from.bits() == 8 && to.bits() == 16 {
			table := make([]uint32, 256)
			for i := range table {
				table[i] = write(from.decode(uint32(i)))
			}
			return func(w *warp) {
				x, y := w.put(d), &w.words[a]
				for i := range x {
					x[i] = table[y[i]&0xff] | table[y[i]>>8&0xff]<<16
				}
				w.done(d)
			}, r.err
		}
		wide := from.bits()
		return func(w *warp) {
			x, y := w.put(d), &w.words[a]
			for i := range x {
				x[i] = write(from.decode(y[i]&(1<<wide-1))) | write(from.decode(y[i]>>wide&(1<<wide-1)))<<shift
			}
			w.done(d)
		}, r.err
	}
	if in.Suffix[n-1] != "f32" {
		return nil, unknown(in)
	}
	r.count(3)
	d, a, b := r.word(0), r.word(1), r.word(2)
	return func(w *warp) {
		x, y, z := w.put(d), &w.words[a], &w.words[b]
		for i := range x {
			x[i] = write(float64(f32(z[i]))) | write(float64(f32(y[i])))<<shift
		}
		w.done(d)
	}, r.err
}
