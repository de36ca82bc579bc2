package virtual

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
)

// numbers are boundary values of integers and floats, and some random operands.
func numbers(rng *rand.Rand, n int) []uint32 {
	list := []uint32{
		0, 1, 2, 31, 32, 33, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<31 + 1, 1<<32 - 1, 1<<32 - 2,
		0x3f800000, 0xbf800000, 0x3f800001, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff, 0x00800000, 0x007fffff, 0x80000001,
		0x33800000, 0x4b000000, 0x4b800001, 0x3f000000, 0x3fc00000, 0x477ff000, 0x477fefff, 0x38800000, 0x33000000, 0x33000001, 0x387fe000,
	}
	for len(list) < n {
		v := rng.Uint32()
		if len(list)%2 == 0 {
			v = math.Float32bits(float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(40)-20))))
		}
		list = append(list, v)
	}
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:n]
}

// compute runs an instruction on %r1, %r2, %r3 (as floats %f1, %f2, %f3) of each thread; its result is %r4, or
// %f4, or the 64 bits of %rd4. Some lanes are inactive; they must keep their old value %r4 = 77.
func compute(t *testing.T, body string, a, b, c []uint32, rest string) []uint64 {
	t.Helper()
	be := newBench(t, Config{})
	n := len(a)
	out := be.upload(make([]byte, 8*n))
	all := make([]uint32, 0, 3*n)
	all = append(append(append(all, a...), b...), c...)
	in := be.upload(words(all...))
	f := be.kernel(entry(`mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ntid.x; mad.lo.u32 %t, %r10, %r11, %t; setp.ge.u32 %p9, %t, %n; @%p9 ret;
		mul.wide.u32 %rd1, %t, 4; add.u64 %rd2, %a, %rd1; mul.wide.u32 %rd3, %n, 4; ld.global.u32 %r1, [%rd2];
		add.u64 %rd2, %rd2, %rd3; ld.global.u32 %r2, [%rd2]; add.u64 %rd2, %rd2, %rd3; ld.global.u32 %r3, [%rd2];
		mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3; mov.u32 %r4, 77; mov.b32 %f4, 77; mov.u64 %rd4, 77;
		mov.b64 %rd5, {%r1, %r2}; mov.b64 %rd6, {%r2, %r3}; mov.b64 %fd1, %rd5; mov.b64 %fd2, %rd6; mov.b64 %fd4, 77;
		mov.b32 {%rs1, _}, %r1; mov.b32 {%rs2, _}, %r2; mov.b32 {%rs3, _}, %r3; mov.u16 %rs4, 77;
		and.b32 %r12, %t, 7; setp.eq.u32 %p8, %r12, 5; `+rest+`
		@%p8 bra SKIP;
		`+body+`
		SKIP:
		add.u64 %rd2, %b, %rd1; add.u64 %rd2, %rd2, %rd1;`+map[bool]string{
		true:  "mov.b64 {%r4, %r5}, %rd4;",
		false: "mov.u32 %r5, 0;",
	}[strings.Contains(body, " %rd4")]+map[bool]string{true: "mov.b64 {%r4, %r5}, %fd4;"}[strings.Contains(body, " %fd4")]+
		map[bool]string{true: "mov.b32 %r4, %f4;"}[strings.Contains(body, " %f4")]+
		map[bool]string{true: "mov.b32 %r4, {%rs4, 0};"}[strings.Contains(body, " %rs4")]+
		`st.global.v2.u32 [%rd2], {%r4, %r5}; ret;`), "k", 0)
	be.check(be.run(f, (n+36)/37, 37, 0, params(in, out, 0, uint32(n))))
	raw := be.download(out, 8*n)
	got := make([]uint64, n)
	for i := range got {
		got[i] = binary.LittleEndian.Uint64(raw[8*i:])
	}
	return got
}

// sameBits compares results; NaN is NaN.
func sameBits(body string, got, want uint64) bool {
	switch {
	case strings.Contains(body, " %f4"):
		x, y := math.Float32frombits(uint32(got)), math.Float32frombits(uint32(want))
		return got == want || x != x && y != y
	case strings.Contains(body, " %fd4"):
		x, y := math.Float64frombits(got), math.Float64frombits(want)
		return got == want || x != x && y != y
	}
	return got == want
}

func fl(u uint32) float32 { return math.Float32frombits(u) }
func ub(f float32) uint64 { return uint64(math.Float32bits(f)) }
func tr(b bool, yes uint64) uint64 {
	if b {
		return yes
	}
	return 0
}

// exactly rounds a·b+c to float32 with big numbers.
func exactly(a, b, c float32, mode big.RoundingMode) float32 {
	for _, x := range []float32{a, b, c} {
		if x != x || math.IsInf(float64(x), 0) {
			return float32(float64(a)*float64(b) + float64(c))
		}
	}
	big64 := func(x float32) *big.Float { return new(big.Float).SetPrec(600).SetFloat64(float64(x)) }
	s := new(big.Float).SetPrec(600).Mul(big64(a), big64(b))
	s.Add(s, big64(c))
	if s.Sign() == 0 && mode == big.ToNegativeInf && (math.Signbit(float64(a)*float64(b)) || math.Signbit(float64(c))) {
		return float32(math.Copysign(0, -1))
	}
	if s.Sign() == 0 {
		return float32(float64(a)*float64(b) + float64(c))
	}
	// A subnormal float32 has fewer bits.
	prec := uint(24)
	if e := s.MantExp(nil); e < -125 {
		bits := 24 - (-125 - e)
		if bits < 1 && mode == big.ToNearestEven {
			f, _ := s.Float32()
			return f
		}
		if bits < 1 {
			away := mode == big.ToPositiveInf && s.Sign() > 0 || mode == big.ToNegativeInf && s.Sign() < 0
			return float32(math.Copysign(float64(math.SmallestNonzeroFloat32)*float64(tr(away, 1)), float64(s.Sign())))
		}
		prec = uint(bits)
	}
	f, _ := new(big.Float).SetPrec(prec).SetMode(mode).Set(s).Float32()
	if math.IsInf(float64(f), 0) && mode != big.ToNearestEven && (mode == big.ToZero || mode == big.ToNegativeInf && f > 0 || mode == big.ToPositiveInf && f < 0) {
		return float32(math.Copysign(math.MaxFloat32, float64(f)))
	}
	return f
}

// TestInstructions checks instructions against Go, bit for bit.
func TestInstructions(t *testing.T) {
	s, u := func(x uint32) int32 { return int32(x) }, func(x int32) uint64 { return uint64(uint32(x)) }
	pair := func(lo, hi uint32) uint64 { return uint64(hi)<<32 | uint64(lo) }
	for body, want := range map[string]func(a, b, c uint32) uint64{
		"add.s32 %r4, %r1, %r2;":             func(a, b, c uint32) uint64 { return uint64(a + b) },
		"sub.s32 %r4, %r1, %r2;":             func(a, b, c uint32) uint64 { return uint64(a - b) },
		"mul.lo.s32 %r4, %r1, %r2;":          func(a, b, c uint32) uint64 { return uint64(a * b) },
		"mul.hi.s32 %r4, %r1, %r2;":          func(a, b, c uint32) uint64 { return uint64(uint32(int64(s(a)) * int64(s(b)) >> 32)) },
		"mul.hi.u32 %r4, %r1, %r2;":          func(a, b, c uint32) uint64 { hi, _ := bits.Mul32(a, b); return uint64(hi) },
		"mad.lo.s32 %r4, %r1, %r2, %r3;":     func(a, b, c uint32) uint64 { return uint64(a*b + c) },
		"mul.wide.s32 %rd4, %r1, %r2;":       func(a, b, c uint32) uint64 { return uint64(int64(s(a)) * int64(s(b))) },
		"mul.wide.u32 %rd4, %r1, %r2;":       func(a, b, c uint32) uint64 { return uint64(a) * uint64(b) },
		"mad.wide.s32 %rd4, %r1, %r2, %rd6;": func(a, b, c uint32) uint64 { return uint64(int64(s(a))*int64(s(b))) + pair(b, c) },
		"add.s64 %rd4, %rd5, %rd6;":          func(a, b, c uint32) uint64 { return pair(a, b) + pair(b, c) },
		"mul.lo.s64 %rd4, %rd5, %rd6;":       func(a, b, c uint32) uint64 { return pair(a, b) * pair(b, c) },
		"mul.hi.s64 %rd4, %rd5, %rd6;": func(a, b, c uint32) uint64 {
			p := new(big.Int).Mul(big.NewInt(int64(pair(a, b))), big.NewInt(int64(pair(b, c))))
			return uint64(p.Rsh(p, 64).Int64())
		},
		"div.s32 %r4, %r1, %r2;": func(a, b, c uint32) uint64 {
			if b == 0 {
				return 1<<32 - 1
			}
			return u(s(a) / s(b))
		},
		"div.u32 %r4, %r1, 7;":        func(a, b, c uint32) uint64 { return uint64(a / 7) },
		"rem.u32 %r4, %r1, 7;":        func(a, b, c uint32) uint64 { return uint64(a % 7) },
		"rem.s32 %r4, %r1, -7;":       func(a, b, c uint32) uint64 { return u(s(a) % -7) },
		"div.u64 %rd4, %rd5, 9;":      func(a, b, c uint32) uint64 { return pair(a, b) / 9 },
		"rem.s64 %rd4, %rd5, 9;":      func(a, b, c uint32) uint64 { return uint64(int64(pair(a, b)) % 9) },
		"and.b32 %r4, %r1, 0xff00ff;": func(a, b, c uint32) uint64 { return uint64(a & 0xff00ff) },
		"or.b32 %r4, %r1, %r2;":       func(a, b, c uint32) uint64 { return uint64(a | b) },
		"xor.b32 %r4, %r1, %r2;":      func(a, b, c uint32) uint64 { return uint64(a ^ b) },
		"not.b32 %r4, %r1;":           func(a, b, c uint32) uint64 { return uint64(^a) },
		"neg.s32 %r4, %r1;":           func(a, b, c uint32) uint64 { return uint64(-a) },
		"abs.s32 %r4, %r1;":           func(a, b, c uint32) uint64 { return u(max(s(a), -s(a))) },
		"shl.b32 %r4, %r1, %r2;":      func(a, b, c uint32) uint64 { return uint64(a << b) },
		"shr.u32 %r4, %r1, %r2;":      func(a, b, c uint32) uint64 { return uint64(a >> b) },
		"shr.s32 %r4, %r1, %r2;":      func(a, b, c uint32) uint64 { return u(s(a) >> min(b, 31)) },
		"shl.b64 %rd4, %rd5, %r3;":    func(a, b, c uint32) uint64 { return pair(a, b) << c },
		"shr.s64 %rd4, %rd5, %r3;":    func(a, b, c uint32) uint64 { return uint64(int64(pair(a, b)) >> min(c, 63)) },
		"shf.l.wrap.b32 %r4, %r1, %r2, %r3;": func(a, b, c uint32) uint64 {
			return uint64(b<<(c&31)) | uint64(uint32(uint64(a)>>(32-c&31))*uint32(min(c&31, 1)))
		},
		"shf.r.clamp.b32 %r4, %r1, %r2, %r3;": func(a, b, c uint32) uint64 { return uint64(uint32(pair(a, b) >> min(c, 32))) },
		"min.s32 %r4, %r1, %r2;":              func(a, b, c uint32) uint64 { return u(min(s(a), s(b))) },
		"max.u32 %r4, %r1, %r2;":              func(a, b, c uint32) uint64 { return uint64(max(a, b)) },
		"popc.b32 %r4, %r1;":                  func(a, b, c uint32) uint64 { return uint64(bits.OnesCount32(a)) },
		"clz.b32 %r4, %r1;":                   func(a, b, c uint32) uint64 { return uint64(bits.LeadingZeros32(a)) },
		"brev.b32 %r4, %r1;":                  func(a, b, c uint32) uint64 { return uint64(bits.Reverse32(a)) },
		"popc.b64 %r4, %rd5;":                 func(a, b, c uint32) uint64 { return uint64(bits.OnesCount64(pair(a, b))) },
		"bfind.u32 %r4, %r1;":                 func(a, b, c uint32) uint64 { return uint64(uint32(31 - bits.LeadingZeros32(a))) },
		"bfe.u32 %r4, %r1, %r2, %r3;": func(a, b, c uint32) uint64 {
			var v uint32
			for i := range c & 255 {
				if p := b&255 + i; p < 32 && i < 32 {
					v |= a >> p & 1 << i
				}
			}
			return uint64(v)
		},
		"bfe.s32 %r4, %r1, %r2, %r3;": func(a, b, c uint32) uint64 { // the algorithm of the manual
			pos, n := b&255, c&255
			sign := a >> min(pos+n-1, 31) & 1
			if n == 0 {
				sign = 0
			}
			var v uint32
			for i := range uint32(32) {
				bit := sign
				if i < n && pos+i <= 31 {
					bit = a >> (pos + i) & 1
				}
				v |= bit << i
			}
			return uint64(v)
		},
		"bfi.b32 %r4, %r1, %r2, 5, 9;":       func(a, b, c uint32) uint64 { return uint64(b&^(511<<5) | a&511<<5) },
		"bfi.b32 %r4, %r1, %r2, 25, 30;":     func(a, b, c uint32) uint64 { return uint64(b&^(127<<25) | a<<25) },
		"lop3.b32 %r4, %r1, %r2, %r3, 0xe8;": func(a, b, c uint32) uint64 { return uint64(a&b | a&c | b&c) },
		"lop3.b32 %r4, %r1, %r2, %r3, 0xca;": func(a, b, c uint32) uint64 { return uint64(a&b | ^a&c) },
		"lop3.b32 %r4, %r1, %r2, %r3, 0x1e;": func(a, b, c uint32) uint64 { return uint64(a ^ (b | c)) },
		"prmt.b32 %r4, %r1, %r2, 0x5410;":    func(a, b, c uint32) uint64 { return uint64(a&0xffff | b<<16) },
		"prmt.b32 %r4, %r1, %r2, 0xb3f7;": func(a, b, c uint32) uint64 { // selector b takes the sign of byte 3, f that of byte 7
			sign := func(x uint32) uint32 { return uint32(int32(x)>>31) & 0xff }
			return uint64(b>>24 | sign(b)<<8 | a>>24<<16 | sign(a)<<24)
		},
		"dp4a.s32.s32 %r4, %r1, %r2, %r3;": func(a, b, c uint32) uint64 {
			for i := range 4 {
				c += uint32(int32(int8(a>>(8*i))) * int32(int8(b>>(8*i))))
			}
			return uint64(c)
		},
		"dp4a.u32.s32 %r4, %r1, %r2, %r3;": func(a, b, c uint32) uint64 {
			for i := range 4 {
				c += uint32(int32(uint8(a>>(8*i))) * int32(int8(b>>(8*i))))
			}
			return uint64(c)
		},
		"dp4a.s32.u32 %r4, %r1, %r2, %r3;": func(a, b, c uint32) uint64 {
			for i := range 4 {
				c += uint32(int32(int8(a>>(8*i))) * int32(uint8(b>>(8*i))))
			}
			return uint64(c)
		},
		"dp4a.u32.u32 %r4, %r1, %r2, %r3;": func(a, b, c uint32) uint64 {
			for i := range 4 {
				c += uint32(uint8(a>>(8*i))) * uint32(uint8(b>>(8*i)))
			}
			return uint64(c)
		},
		"add.s16 %rs4, %rs1, %rs2;":     func(a, b, c uint32) uint64 { return uint64(uint16(a + b)) },
		"shr.s16 %rs4, %rs1, 3;":        func(a, b, c uint32) uint64 { return uint64(uint16(int16(a) >> 3)) },
		"mul.lo.s16 %rs4, %rs1, %rs2;":  func(a, b, c uint32) uint64 { return uint64(uint16(a * b)) },
		"mul.wide.s16 %r4, %rs1, %rs2;": func(a, b, c uint32) uint64 { return u(int32(int16(a)) * int32(int16(b))) },
		"not.b16 %rs4, %rs1;":           func(a, b, c uint32) uint64 { return uint64(uint16(^a)) },
		"max.s16 %rs4, %rs1, %rs2;":     func(a, b, c uint32) uint64 { return uint64(uint16(max(int16(a), int16(b)))) },

		"add.f32 %f4, %f1, %f2;":         func(a, b, c uint32) uint64 { return ub(fl(a) + fl(b)) },
		"sub.rn.f32 %f4, %f1, %f2;":      func(a, b, c uint32) uint64 { return ub(fl(a) - fl(b)) },
		"mul.f32 %f4, %f1, %f2;":         func(a, b, c uint32) uint64 { return ub(fl(a) * fl(b)) },
		"div.rn.f32 %f4, %f1, %f2;":      func(a, b, c uint32) uint64 { return ub(fl(a) / fl(b)) },
		"rcp.rn.f32 %f4, %f1;":           func(a, b, c uint32) uint64 { return ub(1 / fl(a)) },
		"sqrt.rn.f32 %f4, %f1;":          func(a, b, c uint32) uint64 { return ub(float32(math.Sqrt(float64(fl(a))))) },
		"fma.rn.f32 %f4, %f1, %f2, %f3;": func(a, b, c uint32) uint64 { return ub(exactly(fl(a), fl(b), fl(c), big.ToNearestEven)) },
		"fma.rz.f32 %f4, %f1, %f2, %f3;": func(a, b, c uint32) uint64 { return ub(exactly(fl(a), fl(b), fl(c), big.ToZero)) },
		"add.rm.f32 %f4, %f1, %f2;":      func(a, b, c uint32) uint64 { return ub(exactly(fl(a), 1, fl(b), big.ToNegativeInf)) },
		"mul.rp.f32 %f4, %f1, %f2;": func(a, b, c uint32) uint64 {
			if fl(a) == 0 || fl(b) == 0 {
				return ub(fl(a) * fl(b))
			}
			return ub(exactly(fl(a), fl(b), 0, big.ToPositiveInf))
		},
		"neg.f32 %f4, %f1;": func(a, b, c uint32) uint64 { return uint64(a ^ 1<<31) },
		"abs.f32 %f4, %f1;": func(a, b, c uint32) uint64 { return uint64(a &^ (1 << 31)) },
		"max.f32 %f4, %f1, %f2;": func(a, b, c uint32) uint64 {
			x, y := float64(fl(a)), float64(fl(b))
			if x != x || y != y {
				return tr(y == y, uint64(b)) | tr(x == x, uint64(a)) | tr(x != x && y != y, 0x7fc00000)
			}
			return ub(float32(math.Max(x, y)))
		},
		"min.f32 %f4, %f1, %f2;": func(a, b, c uint32) uint64 {
			x, y := float64(fl(a)), float64(fl(b))
			if x != x || y != y {
				return tr(y == y, uint64(b)) | tr(x == x, uint64(a)) | tr(x != x && y != y, 0x7fc00000)
			}
			return ub(float32(math.Min(x, y)))
		},
		"min.NaN.f32 %f4, %f1, %f2;": func(a, b, c uint32) uint64 { return ub(float32(math.Min(float64(fl(a)), float64(fl(b))))) },
		"ex2.approx.f32 %f4, %f1;":   func(a, b, c uint32) uint64 { return ub(float32(math.Exp2(float64(fl(a))))) },
		"add.ftz.f32 %f4, %f1, %f2;": func(a, b, c uint32) uint64 {
			z := func(x uint32) uint32 { return x &^ uint32(tr(x&0x7f800000 == 0, 0x7fffffff)) }
			return uint64(z(uint32(ub(fl(z(a)) + fl(z(b))))))
		},
		"add.sat.f32 %f4, %f1, %f2;": func(a, b, c uint32) uint64 {
			x := fl(a) + fl(b)
			if !(x > 0) {
				return 0
			}
			return ub(min(x, 1))
		},
		"fma.rn.f64 %fd4, %fd1, %fd2, %fd1;": func(a, b, c uint32) uint64 {
			x, y := math.Float64frombits(pair(a, b)), math.Float64frombits(pair(b, c))
			return math.Float64bits(math.FMA(x, y, x))
		},
		"div.rn.f64 %fd4, %fd1, %fd2;": func(a, b, c uint32) uint64 {
			return math.Float64bits(math.Float64frombits(pair(a, b)) / math.Float64frombits(pair(b, c)))
		},

		"cvt.s64.s32 %rd4, %r1;":   func(a, b, c uint32) uint64 { return uint64(int64(s(a))) },
		"cvt.u64.u32 %rd4, %r1;":   func(a, b, c uint32) uint64 { return uint64(a) },
		"cvt.u32.u64 %r4, %rd6;":   func(a, b, c uint32) uint64 { return uint64(b) },
		"cvt.s32.s8 %r4, %r1;":     func(a, b, c uint32) uint64 { return u(int32(int8(a))) },
		"cvt.u32.u8 %r4, %r1;":     func(a, b, c uint32) uint64 { return uint64(uint8(a)) },
		"cvt.s8.s32 %r4, %r1;":     func(a, b, c uint32) uint64 { return u(int32(int8(a))) },
		"cvt.sat.s8.s32 %r4, %r1;": func(a, b, c uint32) uint64 { return u(max(min(s(a), 127), -128)) },
		"cvt.sat.u8.s32 %r4, %r1;": func(a, b, c uint32) uint64 { return u(max(min(s(a), 255), 0)) },
		"cvt.s16.s8 %rs4, %r1;":    func(a, b, c uint32) uint64 { return uint64(uint16(int16(int8(a)))) },
		"cvt.rn.f32.s32 %f4, %r1;": func(a, b, c uint32) uint64 { return ub(float32(s(a))) },
		"cvt.rn.f32.u32 %f4, %r1;": func(a, b, c uint32) uint64 { return ub(float32(a)) },
		"cvt.rn.f32.s64 %f4, %rd5;": func(a, b, c uint32) uint64 {
			f, _ := new(big.Float).SetInt64(int64(pair(a, b))).Float32()
			return ub(f)
		},
		"cvt.rn.f32.u64 %f4, %rd5;": func(a, b, c uint32) uint64 { f, _ := new(big.Float).SetUint64(pair(a, b)).Float32(); return ub(f) },
		"cvt.rz.f32.s32 %f4, %r1;": func(a, b, c uint32) uint64 {
			f, _ := new(big.Float).SetPrec(24).SetMode(big.ToZero).SetInt64(int64(s(a))).Float32()
			return ub(f)
		},
		"cvt.f64.f32 %fd4, %f1;":    func(a, b, c uint32) uint64 { return math.Float64bits(float64(fl(a))) },
		"cvt.rn.f32.f64 %f4, %fd1;": func(a, b, c uint32) uint64 { return ub(float32(math.Float64frombits(pair(a, b)))) },
		"cvt.rni.f32.f32 %f4, %f1;": func(a, b, c uint32) uint64 { return ub(float32(math.RoundToEven(float64(fl(a))))) },
		"cvt.rmi.f32.f32 %f4, %f1;": func(a, b, c uint32) uint64 { return ub(float32(math.Floor(float64(fl(a))))) },
		"cvt.rzi.s32.f32 %r4, %f1;": func(a, b, c uint32) uint64 {
			x := float64(fl(a))
			if x != x {
				return 0
			}
			return u(int32(max(min(math.Trunc(x), 1<<31-1), -1<<31)))
		},
		"cvt.rni.u32.f32 %r4, %f1;": func(a, b, c uint32) uint64 {
			x := float64(fl(a))
			if x != x {
				return 0
			}
			return uint64(uint32(max(min(math.RoundToEven(x), 1<<32-1), 0)))
		},
		"cvt.rni.s8.f32 %r4, %f1;": func(a, b, c uint32) uint64 {
			x := float64(fl(a))
			if x != x {
				return 0
			}
			return u(int32(max(min(math.RoundToEven(x), 127), -128)))
		},

		"setp.lt.s32 %p1, %r1, %r2; selp.b32 %r4, 1, 0, %p1;": func(a, b, c uint32) uint64 { return tr(s(a) < s(b), 1) },
		"setp.le.u32 %p1, %r1, %r2; selp.b32 %r4, 1, 0, %p1;": func(a, b, c uint32) uint64 { return tr(a <= b, 1) },
		"setp.hi.u32 %p1, %r1, %r2; selp.b32 %r4, 1, 0, %p1;": func(a, b, c uint32) uint64 { return tr(a > b, 1) },
		"setp.ne.s64 %p1, %rd5, %rd6; selp.b32 %r4, %r1, %r2, %p1;": func(a, b, c uint32) uint64 {
			if pair(a, b) != pair(b, c) {
				return uint64(a)
			}
			return uint64(b)
		},
		"setp.ge.f32 %p1, %f1, %f2; selp.b32 %r4, 1, 0, %p1;":  func(a, b, c uint32) uint64 { return tr(fl(a) >= fl(b), 1) },
		"setp.geu.f32 %p1, %f1, %f2; selp.b32 %r4, 1, 0, %p1;": func(a, b, c uint32) uint64 { return tr(!(fl(a) < fl(b)), 1) },
		"setp.ltu.f32 %p1, %f1, %f2; selp.b32 %r4, 1, 0, %p1;": func(a, b, c uint32) uint64 { return tr(!(fl(a) >= fl(b)), 1) },
		"setp.leu.f32 %p1, %f1, %f2; selp.b32 %r4, 1, 0, %p1;": func(a, b, c uint32) uint64 { return tr(!(fl(a) > fl(b)), 1) },
		"setp.ne.f32 %p1, %f1, %f2; selp.b32 %r4, 1, 0, %p1;": func(a, b, c uint32) uint64 {
			return tr(fl(a) != fl(b) && fl(a) == fl(a) && fl(b) == fl(b), 1)
		},
		"setp.neu.f32 %p1, %f1, %f2; selp.b32 %r4, 1, 0, %p1;": func(a, b, c uint32) uint64 { return tr(fl(a) != fl(b), 1) },
		"setp.nan.f32 %p1, %f1, %f1; selp.b32 %r4, 1, 0, %p1;": func(a, b, c uint32) uint64 { return tr(fl(a) != fl(a), 1) },
		"setp.lt.u32 %p2, %r2, %r3; setp.lt.and.u32 %p1|%p3, %r1, %r2, %p2; selp.b32 %r4, 1, 0, %p1; @%p3 add.u32 %r4, %r4, 2;": func(a, b, c uint32) uint64 {
			return tr(a < b && b < c, 1) | tr(!(a < b) && b < c, 2)
		},
		"setp.lt.u32 %p2, %r2, %r3; setp.lt.or.u32 %p1, %r1, %r2, !%p2; not.pred %p3, %p1; xor.pred %p3, %p3, %p2; selp.b32 %r4, 1, 0, %p3;": func(a, b, c uint32) uint64 {
			return tr(!(a < b || !(b < c)) != (b < c), 1)
		},
		"mov.b32 {%rs5, %rs6}, %r1; mov.b32 %r4, {%rs6, %rs5};":     func(a, b, c uint32) uint64 { return uint64(a>>16 | a<<16) },
		"mov.b64 %rd4, {%r2, %r1};":                                 func(a, b, c uint32) uint64 { return pair(b, a) },
		"{ .reg .b32 %r4x; mov.b32 %r4x, %r1; mov.b32 %r4, %r4x; }": func(a, b, c uint32) uint64 { return uint64(a) },
	} {
		rng := rand.New(rand.NewPCG(7, uint64(len(body))))
		const n = 150
		a, b, c := numbers(rng, n), numbers(rng, n), numbers(rng, n)
		if strings.HasPrefix(body, "fma.r") { // cases close to the midpoint of two float32
			for i := range a[:64] {
				a[i], b[i] = 0x3f800000|rng.Uint32()>>9, 0x3f800000|1<<rng.IntN(12)
				c[i] = 0x33800000 | uint32(rng.IntN(2))<<31 | rng.Uint32()>>20
			}
			// 1 + 2^-23 + 2^-24·(1 − 2^-46), which float64 rounds to the midpoint of two float32, and a subnormal case.
			for i := 64; i < 80; i += 2 {
				a[i], b[i], c[i] = 0x3f800001, 0x337ffffe, 0x3f800001|uint32(i)<<3
				a[i+1], b[i+1], c[i+1] = 0x1a000001, 0x19fffffe, 0x007fff01|uint32(i)
			}
		}
		got := compute(t, body, a, b, c, "")
		for i := range got {
			w := uint64(77)
			if i%8 != 5 {
				w = want(a[i], b[i], c[i])
			}
			if !sameBits(body, got[i], w) {
				t.Errorf("%s with %#x, %#x, %#x: got %#x, want %#x", body, a[i], b[i], c[i], got[i], w)
				break
			}
		}
	}
}

// TestHalf checks conversions and arithmetic on float16 and bfloat16. The expected result is found by a search for the
// nearest of all 65536 numbers, ties to even.
func TestHalf(t *testing.T) {
	formats := map[string]func(h uint32) float64{
		"f16": func(h uint32) float64 {
			sign, e, m := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
			switch {
			case e == 31 && m == 0:
				return sign * math.Inf(1)
			case e == 31:
				return math.NaN()
			case e == 0:
				return math.Copysign(math.Ldexp(m, -24), sign)
			}
			return sign * math.Ldexp(1024+m, e-25)
		},
		"bf16": func(h uint32) float64 { return float64(fl(h << 16)) },
	}
	for kind, decode := range formats {
		round := func(x float64) uint32 {
			sign := uint32(math.Float64bits(x) >> 63 << 15)
			x = math.Abs(x)
			low, high := uint32(0), uint32(0x7c00) // the range of finite numbers, and infinity as the next one
			next := 65536.0
			if kind == "bf16" {
				high, next = 0x7f80, math.Exp2(128)
			}
			at := func(h uint32) float64 {
				if math.IsInf(decode(h), 1) {
					return next
				}
				return decode(h)
			}
			if x != x {
				return 0xffff
			}
			for high-low > 1 {
				if mid := (low + high) / 2; at(mid) <= x {
					low = mid
				} else {
					high = mid
				}
			}
			down, up := x-at(low), at(high)-x
			if down > up || down == up && low&1 != 0 {
				low = high
			}
			return sign | low
		}
		check := func(body string, want func(a, b, c uint32) float64) {
			rng := rand.New(rand.NewPCG(3, 4))
			const n = 2000
			a, b, c := numbers(rng, n), numbers(rng, n), numbers(rng, n)
			got := compute(t, body, a, b, c, "")
			for i := range got {
				if i%8 == 5 {
					continue
				}
				x := want(a[i], b[i], c[i])
				if g, w := uint32(got[i]), round(x); g != w && !(x != x && decode(g) != decode(g)) {
					t.Errorf("%s with %#x, %#x, %#x: got %#x, want %#x", body, a[i], b[i], c[i], g, w)
					return
				}
			}
		}
		is := func(body string) string { return strings.ReplaceAll(body, "KIND", kind) }
		check(is("cvt.rn.KIND.f32 %rs4, %f1;"), func(a, b, c uint32) float64 { return float64(fl(a)) })
		check(is("add.KIND %rs4, %rs1, %rs2;"), func(a, b, c uint32) float64 { return decode(a&0xffff) + decode(b&0xffff) })
		check(is("mul.rn.KIND %rs4, %rs1, %rs2;"), func(a, b, c uint32) float64 { return decode(a&0xffff) * decode(b&0xffff) })
		check(is("max.KIND %rs4, %rs1, %rs2;"), func(a, b, c uint32) float64 {
			x, y := decode(a&0xffff), decode(b&0xffff)
			if x != x {
				return y
			}
			if y != y {
				return x
			}
			return math.Max(x, y)
		})
		// Products of float16 numbers are exact in float64. So are sums, unless the operands are so far apart that the
		// error does not change the result.
		check(is("fma.rn.KIND %rs4, %rs1, %rs2, %rs3;"), func(a, b, c uint32) float64 {
			return sumOddBig(decode(a&0xffff)*decode(b&0xffff), decode(c&0xffff))
		})

		all := make([]uint32, 65536)
		for i := range all {
			all[i] = uint32(i)
		}
		got := compute(t, is("cvt.f32.KIND %f4, %rs1;"), all, all, all, "")
		for i, g := range got {
			x, y := float64(fl(uint32(g))), decode(uint32(i))
			if i%8 != 5 && (x != y && (x == x || y == y) || math.Signbit(x) != math.Signbit(y) && y == y) {
				t.Fatalf("cvt.f32.%s of %#x: got %g, want %g", kind, i, x, y)
			}
		}
	}
}

// sumOddBig returns a+b rounded to odd with 60 bits, computed with big numbers.
func sumOddBig(a, b float64) float64 {
	if s := a + b; s != s || math.IsInf(s, 0) || s == 0 {
		return s
	}
	exact := new(big.Float).SetPrec(2000).Add(new(big.Float).SetPrec(2000).SetFloat64(a), new(big.Float).SetPrec(2000).SetFloat64(b))
	down, accuracy := new(big.Float).SetMode(big.ToZero).SetPrec(53).Set(exact).Float64()
	if accuracy != big.Exact {
		return down
	}
	if down1 := new(big.Float).SetFloat64(down); down1.Cmp(exact) != 0 {
		return math.Float64frombits(math.Float64bits(down) | 1)
	}
	return down
}
