package cpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pesti/exec/cpu/kernel"
)

// A Roofline holds the peak rates of all workers of a machine together (Williams, Waterman &
// Patterson, "Roofline", 2009), and the cost of a wave. The reading rate is the median of its
// samples, because it is compared with medians of runs. The other rates are the best samples, which
// other programs disturbed least.
type Roofline struct {
	Workers   int                `json:"workers"`
	ReadBytes int                `json:"read_bytes"`   // size of the buffer that is read from end to end
	Read      float64            `json:"bytes_s"`      // bytes read of that buffer
	Near      float64            `json:"near_bytes_s"` // bytes read from each core's own cache
	MACs      map[string]float64 `json:"macs_s"`       // multiply-accumulates, by probe: "f32", "int16", …
	Wave      float64            `json:"wave_s"`       // seconds of a wave without work
}

// A Prober takes the samples of a Roofline on the workers of a machine, between its runs: with the
// same threads on the same cores, and memory like that of weights.
type Prober struct {
	machine *Machine
	memory  *Memory
	probes  []kernel.Probe
	spans   []probeSpan
	samples map[string][]float64
	size    int
}

// A probeSpan holds when one worker began and ended, on a separate cache line.
type probeSpan struct {
	begin, end time.Time
	done       int
	_          [64]byte
}

const (
	// MaxProbe is the largest buffer that is read. It exceeds all caches, and larger buffers are
	// read at the same rate.
	MaxProbe = 1 << 30
	// probeNear is the size of the buffer that each worker reads repeatedly: half of a small core's
	// own cache.
	probeNear = 128 << 10
	// probeTime is the minimum time of a sample: long compared with the clock's resolution and with
	// the start of a run.
	probeTime = 2 * time.Millisecond

	probeNearName = "near"
	probeWave     = "wave"
)

// NewProber allocates a buffer of size bytes, at most MaxProbe. Each worker first touches the part
// that it will read. NewProber chooses the best probes of the instruction sets isas. Free frees the
// buffer.
func NewProber(m *Machine, size int, isas []string) (*Prober, error) {
	unit := kernel.ProbeUnit * m.workers
	size = (min(max(size, 1), MaxProbe) + unit - 1) / unit * unit
	memory, err := AllocateHuge(size)
	if err != nil {
		return nil, fmt.Errorf("a buffer to read from: %w", err)
	}
	p := &Prober{machine: m, memory: memory, probes: kernel.Probes(isas), size: size,
		spans: make([]probeSpan, m.workers), samples: map[string][]float64{}}
	err = p.run(context.Background(), func(w int) int {
		part := p.part(w)
		for i := range part {
			part[i] = byte(i) // so that no page is the shared zero page
		}
		return len(part)
	})
	return p, err
}

// Free frees the buffer.
func (p *Prober) Free() error { return p.memory.Free() }

// part returns the part of the buffer that worker w reads.
func (p *Prober) part(w int) []byte {
	n := p.size / p.machine.workers
	return p.memory.Data[w*n : (w+1)*n]
}

// SampleRead takes one sample of the reading rate. It returns context.Cause(ctx) if ctx ends first.
func (p *Prober) SampleRead(ctx context.Context) error {
	return p.sample(ctx, kernel.ProbeRead, kernel.ProbeRead, p.part)
}

// Sample takes one sample of every rate. It returns context.Cause(ctx) if ctx ends first.
func (p *Prober) Sample(ctx context.Context) error {
	if err := p.SampleRead(ctx); err != nil {
		return err
	}
	near := min(probeNear, p.size/p.machine.workers)
	if err := p.sample(ctx, probeNearName, kernel.ProbeRead, func(w int) []byte { return p.part(w)[:near] }); err != nil {
		return err
	}
	for _, probe := range p.probes {
		if probe.Name == kernel.ProbeRead {
			continue
		}
		if err := p.sample(ctx, probe.Name, probe.Name, func(int) []byte { return nil }); err != nil {
			return err
		}
	}
	return p.sampleWaves(ctx)
}

// sample lets every worker repeat a probe on its data for about probeTime, and records the total
// rate per second under a name. The number of repetitions follows from the time of a single call.
func (p *Prober) sample(ctx context.Context, name, probe string, data func(w int) []byte) error {
	i := slices.IndexFunc(p.probes, func(k kernel.Probe) bool { return k.Name == probe })
	if i < 0 {
		return nil
	}
	repeat := 1
	for {
		err := p.run(ctx, func(w int) int {
			done := 0
			for range repeat {
				done += p.probes[i].Run(data(w))
			}
			return done
		})
		if err != nil {
			return err
		}
		took, done := p.took()
		if took >= probeTime {
			p.samples[name] = append(p.samples[name], float64(done)/took.Seconds())
			return nil
		}
		repeat = max(2*repeat, int(float64(repeat)*1.5*float64(probeTime)/float64(max(took, 1000))))
	}
}

// run runs f once on every worker concurrently.
func (p *Prober) run(ctx context.Context, f func(w int) int) error {
	s := make(Schedule, p.machine.workers)
	for w := range s {
		span := &p.spans[w]
		s[w] = [][]kernel.Func{nil, {func(*kernel.Run) { // the first wave only waits for all workers
			span.begin = time.Now()
			span.done = f(w)
			span.end = time.Now()
		}}}
	}
	return p.runSchedule(ctx, s)
}

func (p *Prober) runSchedule(ctx context.Context, s Schedule) error {
	err := p.machine.Run(ctx.Done(), s, kernel.Run{})
	if errors.Is(err, ErrCanceled) {
		return context.Cause(ctx)
	}
	return err
}

// took returns the time of the last run, from the first worker's start to the last worker's end,
// and the total work done.
func (p *Prober) took() (time.Duration, int) {
	begin, end, done := p.spans[0].begin, p.spans[0].end, 0
	for i := range p.spans {
		s := &p.spans[i]
		if s.begin.Before(begin) {
			begin = s.begin
		}
		if s.end.After(end) {
			end = s.end
		}
		done += s.done
	}
	return end.Sub(begin), done
}

// sampleWaves records the time of a wave without work.
func (p *Prober) sampleWaves(ctx context.Context) error {
	const waves, times = 100, 10
	s := make(Schedule, p.machine.workers)
	for w := range s {
		s[w] = make([][]kernel.Func, waves*times+1)
	}
	var begin time.Time
	for i := 0; i < len(s[0]); i += waves {
		s[0][i] = []kernel.Func{func(*kernel.Run) {
			now := time.Now()
			if !begin.IsZero() {
				p.samples[probeWave] = append(p.samples[probeWave], now.Sub(begin).Seconds()/waves)
			}
			begin = now
		}}
	}
	return p.runSchedule(ctx, s)
}

// Roofline returns the roofline of the samples so far.
func (p *Prober) Roofline() *Roofline {
	r := &Roofline{Workers: p.machine.workers, ReadBytes: p.size,
		Read: Median(p.samples[kernel.ProbeRead]), Near: largest(p.samples[probeNearName]),
		MACs: map[string]float64{}, Wave: smallest(p.samples[probeWave])}
	for _, probe := range p.probes {
		if s := p.samples[probe.Name]; probe.Name != kernel.ProbeRead && len(s) > 0 {
			r.MACs[probe.Name] = largest(s)
		}
	}
	return r
}

// largest and smallest return the extremes of a sample, 0 if it is empty.
func largest(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return slices.Max(x)
}

func smallest(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return slices.Min(x)
}

// Median returns the median of a sample, 0 if it is empty.
func Median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
