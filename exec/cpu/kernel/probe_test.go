package kernel

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"pesti/exec/cpu/isa"
)

// TestProbesRead checks that read probes read every byte: changing one changes their result.
func TestProbesRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 255, 256, 512, 4096, 1<<18 + 256, 1<<20 + 300} {
		data := make([]byte, size+1)[1:] // misaligned
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		var want uint64
		for i := 0; i+8 <= size/ProbeUnit*ProbeUnit; i += 8 {
			want ^= binary.LittleEndian.Uint64(data[i:])
		}
		for name, read := range readers() {
			if got := read(data); got != want {
				t.Errorf("%s of %d bytes: sum %x, want %x", name, size, got, want)
			}
		}
	}
}

// TestProbes checks that probes report their work, and that each instruction set has all kinds of probes
// of the one before.
func TestProbes(t *testing.T) {
	data := make([]byte, 1<<12+17)
	names := []string{ProbeRead, ProbeF32, ProbeInt16}
	for _, sets := range [][]string{{"portable"}, detected()} {
		var got []string
		for _, p := range Probes(sets) {
			got = append(got, p.Name)
			if !slices.Contains(sets, p.ISA) {
				t.Errorf("%v: probe %s is for %s", sets, p.Name, p.ISA)
			}
			if done := p.Run(data); p.Name == ProbeRead && done != 1<<12 || done <= 0 {
				t.Errorf("probe %s of %s has done %d", p.Name, p.ISA, done)
			}
			if p.Run(nil) < 0 {
				t.Errorf("probe %s of no data", p.Name)
			}
		}
		if !slices.Equal(got[:3], names) {
			t.Errorf("%v: probes %q, want at least %q", sets, got, names)
		}
	}
	if n := len(Probes(nil)); n != 0 {
		t.Errorf("%d probes without an instruction set", n)
	}
	var floats [8][8]float32
	var words [8][4]int64
	for i := range floats {
		for j := range floats[i] {
			floats[i][j] = float32(8*i + j)
		}
		for j := range words[i] {
			words[i][j] = int64(4*i+j) * ones
		}
	}
	// Ten rows: all eight, then two again.
	if got, want := multiplyFloats(10, &floats, 3), float32(3*(63*32+15*8)); got != want {
		t.Errorf("multiplyFloats returns %v, want %v", got, want)
	}
	if got, want := multiplySWAR(10, &words, 3), int64(3*(31*16+7*4)*ones); got != want {
		t.Errorf("multiplySWAR returns %x, want %x", got, want)
	}
}

// detected returns the instruction sets that this machine supports.
func detected() []string {
	var names []string
	for _, s := range isa.Detect() {
		if s.Has {
			names = append(names, s.Name)
		}
	}
	return names
}

func BenchmarkProbes(b *testing.B) {
	data := make([]byte, 1<<18)
	for _, p := range Probes(detected()) {
		b.Run(p.Name+"/"+p.ISA, func(b *testing.B) {
			done := 0
			for b.Loop() {
				done += p.Run(data)
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds()/1e9, "G/s")
		})
	}
}
