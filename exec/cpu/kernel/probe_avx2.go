//go:build amd64 && !purego

package kernel

var assemblyProbes = []Probe{
	{ProbeRead, "avx2", func(data []byte) int { readVectors(data); return len(data) / ProbeUnit * ProbeUnit }},
	{ProbeF32, "avx2", multiplies(probeF32AVX2, 8)},
	{ProbeInt16, "avx2", multiplies(probeInt16AVX2, 16)},
	{ProbeInt8, "avx2", multiplies(probeInt8AVX2, 32)},
}

// readVectors is readWords with AVX2.
func readVectors(data []byte) uint64 {
	const call = 1 << 16 // bytes of a stream in a call; limited because assembly cannot be preempted
	n := len(data) / ProbeUnit * (ProbeUnit / 4)
	var sum uint64
	for at := 0; at < n; at += call {
		sum ^= probeReadAVX2(&data[at], n, min(call, n-at))
	}
	return sum
}

// multiplies returns the Run function for a kernel that executes 12 instructions per round, each with
// the given number of products.
func multiplies(f func(out, p *[32]byte, n int), products int) func([]byte) int {
	return func([]byte) int {
		var out, p [32]byte
		f(&out, &p, probeRounds)
		return 12 * products * probeRounds
	}
}
