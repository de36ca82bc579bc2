package main

import (
	"context"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
)

// probeFlag is the flag with which this program measures the read bandwidth and nothing else.
const probeFlag = "-probe"

// probeSamples is how often reading is measured before and after the programs. The median counts.
const probeSamples = 5

// readBandwidth measures how many bytes a second threads read from a buffer of size bytes.
func readBandwidth(ctx context.Context, threads int, size int64) (float64, error) {
	best, err := isa.Best("")
	if err != nil {
		return 0, err
	}
	sets, err := isa.UpTo(best)
	if err != nil {
		return 0, err
	}
	m := cpu.New(threads)
	defer m.Close()
	p, err := cpu.NewProber(m, int(min(size, cpu.MaxProbe)), sets)
	if err != nil {
		return 0, err
	}
	for range probeSamples {
		if err := p.SampleRead(ctx); err != nil {
			p.Free()
			return 0, err
		}
	}
	read := p.Roofline().Read
	return read, p.Free()
}
