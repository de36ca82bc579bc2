//go:build amd64 && !purego

package kernel

var assemblyProbes = []Probe{
	{ProbeRead, "avx2", func(data []byte) int { readVectors(data); return len(data) / ProbeUnit * ProbeUnit }},
	{ProbeF32, "avx2", multiplies(probeF32AVX2, 8)},
	{ProbeInt16, "avx2", multiplies(probeInt16AVX2, 16)},
	{ProbeInt8, "avx2", multiplies(probeInt8AVX2, 32)},
}

// readVectors is readWords.
func readVectors(data []byte) uint64 {
	const call = 1 << 16 // bytes of a stream; a goroutine in assembly cannot be interrupted
	n := len(data) / ProbeUnit * (ProbeUnit / 4)
	var sum uint64
	for at := 0; at < n; at += call {
		sum ^= probeReadAVX2(&data[at], n, min(call, n-at))
	}
	return sum
}

// multiplies is a probe of a kernel with so many products in an instruction, of which there are 12
// in a round.
func multiplies(f func(out, p *[32]byte, n int), products int) func([]byte) int {
	return func([]byte) int {
		var out, p [32]byte
		f(&out, &p, probeRounds)
		return 12 * products * probeRounds
	}
}
