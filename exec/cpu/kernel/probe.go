package kernel

import (
	"encoding/binary"
	"slices"
)

// A Probe is a kernel that does one thing as often as a core can and nothing else: what other
// kernels are held against. One call takes well below a millisecond.
type Probe struct {
	Name string // what it does: one of the constants below
	ISA  string // the least instruction set it needs

	// Run returns how much it has done. Probes of reading read all of data but for less than
	// ProbeUnit bytes at its end; the others do not look at it.
	Run func(data []byte) (done int)
}

// What probes do.
const (
	ProbeRead  = "read"  // bytes read
	ProbeF32   = "f32"   // multiplications in float32, each with an addition
	ProbeInt16 = "int16" // products of 16-bit integers, added in 32 bits or more
	ProbeInt8  = "int8"  // products of 8-bit integers, added in 16 bits
)

// ProbeUnit is the unit in which data is read: a cache line of each of four streams.
const ProbeUnit = 4 * 64

// Probes returns the best variant of each probe of the instruction sets that may be used.
func Probes(isas []string) []Probe {
	var best []Probe
	for _, p := range slices.Concat(portableProbes, assemblyProbes) {
		if !slices.Contains(isas, p.ISA) {
			continue
		}
		if i := slices.IndexFunc(best, func(b Probe) bool { return b.Name == p.Name }); i >= 0 {
			best[i] = p // later rows are better
		} else {
			best = append(best, p)
		}
	}
	return best
}

var portableProbes = []Probe{
	{ProbeRead, "portable", func(data []byte) int { readWords(data); return len(data) / ProbeUnit * ProbeUnit }},
	{ProbeF32, "portable", func([]byte) int { multiplyFloats(probeRounds, &[8][8]float32{}, 1); return 8 * probeRounds }},
	{ProbeInt16, "portable", portableIntegers},
	{ProbeInt8, "portable", portableIntegers}, // swar_products.go multiplies bytes as it does words
}

func portableIntegers([]byte) int {
	multiplySWAR(probeRounds, &[8][4]int64{}, 1)
	return 8 * probeRounds
}

// probeRounds is how often a probe does what it does, so that a call takes some 20 µs.
const probeRounds = 4 << 10

// These are not inlined: where nobody looks at the result, nothing would be computed.

// readWords returns the exclusive or of the 64-bit words of data, in four streams.
//
//go:noinline
func readWords(data []byte) uint64 {
	n := len(data) / ProbeUnit * (ProbeUnit / 4)
	a, b, c, d := data[:n], data[n:][:n], data[2*n:][:n], data[3*n:][:n]
	var x0, x1, x2, x3 uint64
	for i := 0; i+8 <= n; i += 8 {
		x0 ^= binary.LittleEndian.Uint64(a[i:])
		x1 ^= binary.LittleEndian.Uint64(b[i:])
		x2 ^= binary.LittleEndian.Uint64(c[i:])
		x3 ^= binary.LittleEndian.Uint64(d[i:])
	}
	return x0 ^ x1 ^ x2 ^ x3
}

// multiplyFloats returns the sum of the products of q with 8·n of the elements of x, again and again
// from the first: rounded, then added, as all products in float32 are written here.
//
//go:noinline
func multiplyFloats(n int, x *[8][8]float32, q float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for i := range n {
		p := &x[i%8]
		s0 += float32(p[0] * q)
		s1 += float32(p[1] * q)
		s2 += float32(p[2] * q)
		s3 += float32(p[3] * q)
		s4 += float32(p[4] * q)
		s5 += float32(p[5] * q)
		s6 += float32(p[6] * q)
		s7 += float32(p[7] * q)
	}
	return s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7
}

// multiplySWAR is multiplyFloats for 4·n words with an integer in each half, as in the integer
// kernels: two products in one multiplication.
//
//go:noinline
func multiplySWAR(n int, x *[8][4]int64, q int64) int64 {
	var s0, s1, s2, s3 int64
	for i := range n {
		p := &x[i%8]
		s0 += p[0] * q
		s1 += p[1] * q
		s2 += p[2] * q
		s3 += p[3] * q
	}
	return s0 + s1 + s2 + s3
}
