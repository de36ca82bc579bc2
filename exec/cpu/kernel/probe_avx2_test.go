//go:build amd64 && !purego

package kernel

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

func readers() map[string]func([]byte) uint64 {
	all := map[string]func([]byte) uint64{"portable": readWords}
	if slices.Contains(detected(), "avx2") {
		all["avx2"] = readVectors
	}
	return all
}

// TestProbesMultiply checks that the multiply-add probes do as much work as they report.
func TestProbesMultiply(t *testing.T) {
	if !slices.Contains(detected(), "avx2") {
		t.Skip("this machine has no AVX2")
	}
	for _, n := range []int{0, 1, 7} {
		var out, p [32]byte
		for i := range 8 {
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(float32(i)))
		}
		probeF32AVX2(&out, &p, n)
		for i := range 8 {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(out[4*i:])); got != float32(12*n*i*i) {
				t.Errorf("f32, %d rounds: sum %d is %v, want %d", n, i, got, 12*n*i*i)
			}
		}
		for i := range 16 {
			binary.LittleEndian.PutUint16(p[2*i:], uint16(-i))
		}
		probeInt16AVX2(&out, &p, n)
		for i := range 8 {
			a, b := 2*i, 2*i+1
			if got, want := int32(binary.LittleEndian.Uint32(out[4*i:])), int32(12*n*(a*a+b*b)); got != want {
				t.Errorf("int16, %d rounds: sum %d is %d, want %d", n, i, got, want)
			}
		}
		for i := range p {
			p[i] = byte(i % 7)
		}
		probeInt8AVX2(&out, &p, n)
		for i := range 16 {
			a, b := 2*i%7, (2*i+1)%7
			if got, want := int16(binary.LittleEndian.Uint16(out[2*i:])), int16(12*n*(a*a+b*b)); got != want {
				t.Errorf("int8, %d rounds: sum %d is %d, want %d", n, i, got, want)
			}
		}
	}
}
