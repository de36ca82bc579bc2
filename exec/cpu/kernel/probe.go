package kernel

import (
	"encoding/binary"
	"slices"
)

// A Probe is a micro-benchmark of one kind of work, whose peak rate limits real kernels (see the
// roofline of package cpu). One call takes well below a millisecond.
type Probe struct {
	Name string // the kind of work: one of the constants below
	ISA  string // instruction set that it requires

	// Run returns the amount of work done. Read probes read data, except fewer than ProbeUnit bytes at
	// its end; other probes ignore it.
	Run func(data []byte) (done int)
}

// Kinds of work, with their units.
const (
	ProbeRead  = "read"  // bytes read
	ProbeF32   = "f32"   // float32 multiply-adds
	ProbeInt16 = "int16" // multiply-adds of 16-bit integers, accumulated in at least 32 bits
	ProbeInt8  = "int8"  // multiply-adds of 8-bit integers, accumulated in 16 bits
)

// ProbeUnit is the unit of reading in bytes: a cache line from each of four streams.
const ProbeUnit = 4 * 64

// Probes returns the best variant of each probe whose instruction set is in isas.
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
	{ProbeInt8, "portable", portableIntegers}, // the portable kernels multiply bytes and words alike
}

func portableIntegers([]byte) int {
	multiplySWAR(probeRounds, &[8][4]int64{}, 1)
	return 8 * probeRounds
}

// probeRounds is the number of rounds in a call, chosen so that a call takes about 20 µs.
const probeRounds = 4 << 10

// The functions below are not inlined: the compiler would remove computations with unused results.

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

// multiplyFloats returns the sum of the products of q with 8·n elements of x, which it reads cyclically. Each
// product is rounded before it is added, as in all float32 kernels.
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

// multiplySWAR is multiplyFloats for 4·n words with an integer in each half: two products per
// multiplication, as in the portable integer kernels.
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
