package cpu

import (
	"context"
	"errors"
	"testing"

	"pesti/exec/cpu/kernel"
)

// TestRoofline checks that a roofline has every figure, also for more workers than processors and
// for sizes that no unit divides. It does not check the values, which depend on the machine.
func TestRoofline(t *testing.T) {
	for _, workers := range []int{1, 2, 3} {
		m := New(workers)
		for _, size := range []int{0, 1, 100_001} {
			p, err := NewProber(m, size, []string{"portable"})
			if err != nil {
				t.Fatal(err)
			}
			if r := p.Roofline(); r.Read != 0 || len(r.MACs) != 0 {
				t.Errorf("without samples: %+v", r)
			}
			if err := p.Sample(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := p.Roofline()
			if r.Workers != workers || r.ReadBytes < size || r.ReadBytes >= size+workers*kernel.ProbeUnit+1 {
				t.Errorf("%d workers, %d bytes: %+v", workers, size, r)
			}
			if r.Read <= 0 || r.Near <= 0 || r.MACs[kernel.ProbeF32] <= 0 || r.MACs[kernel.ProbeInt16] <= 0 || r.Wave <= 0 {
				t.Errorf("%d workers, %d bytes: a figure is missing: %+v", workers, size, r)
			}
			if err := p.Free(); err != nil {
				t.Error(err)
			}
		}
		p, err := NewProber(m, 1, []string{"portable"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Sample(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a sample that was canceled: error %v", err)
		}
		m.Close()
	}
}

// TestProberParts checks that the workers' parts of the buffer are disjoint and cover it.
func TestProberParts(t *testing.T) {
	m := New(3)
	defer m.Close()
	p, err := NewProber(m, 10_000, []string{"portable"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	n := 0
	for w := range 3 {
		n += len(p.part(w))
	}
	if n != len(p.memory.Data) || &p.part(2)[len(p.part(2))-1] != &p.memory.Data[n-1] || p.memory.Data[n-1] == 0 {
		t.Errorf("the parts have %d bytes of %d, or were not touched", n, len(p.memory.Data))
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(c.x); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.x, got, c.want)
		}
	}
}
