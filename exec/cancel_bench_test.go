package exec_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"pesti/conformance/testenv"
	"pesti/exec"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/lower"
)

// BenchmarkCancel cancels prompts of 512 tokens of SmolLM2, each at another moment of its forward pass. It
// reports the longest time from the cancellation until Feed returns, the longest wave of all passes, and by how
// much a return took longer than that wave.
func BenchmarkCancel(b *testing.B) {
	f, err := gguf.Open(testenv.Model(b, testenv.SmolLM2))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	m, err := frontend.Load(f)
	if err != nil {
		b.Fatal(err)
	}
	p := compile(b, m, lower.Options{Ctx: 512, Ubatch: 512, Threads: exec.DefaultThreads()}).Plan
	e, err := exec.Open(p, f, exec.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	s := session(b, e)
	ids := prompt(512)
	var longest time.Duration // wave
	var began time.Time
	wave := func() {
		now := time.Now()
		if !began.IsZero() {
			longest = max(longest, now.Sub(began))
		}
		began = now
	}
	defer e.BeforeWaves(func(int) { wave() })()
	// run evaluates the prompt and returns the time of its end.
	run := func(ctx context.Context) (time.Time, error) {
		began = time.Time{}
		_, err := s.Feed(ctx, ids)
		wave()
		if err := s.Truncate(0); err != nil {
			b.Fatal(err)
		}
		return began, err
	}
	var whole time.Duration
	for range 2 { // the second one finds all memory mapped
		start := time.Now()
		end, err := run(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		whole = end.Sub(start)
	}
	var toReturn time.Duration
	canceled := 0
	b.ResetTimer()
	for i := range b.N {
		_, part := math.Modf(float64(i) * math.Phi) // spread evenly
		ctx, cancel := context.WithCancel(b.Context())
		at := make(chan time.Time, 1)
		timer := time.AfterFunc(time.Duration(part*float64(whole)), func() {
			at <- time.Now()
			cancel()
		})
		end, err := run(ctx)
		switch {
		case errors.Is(err, context.Canceled):
			canceled++
			toReturn = max(toReturn, end.Sub(<-at))
		case err != nil:
			b.Fatal(err)
		}
		timer.Stop()
		cancel()
	}
	if canceled == 0 {
		b.Fatal("no pass was canceled")
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	b.ReportMetric(ms(toReturn), "ms-to-return")
	b.ReportMetric(ms(longest), "ms-longest-wave")
	b.ReportMetric(ms(toReturn-longest), "ms-beyond-wave")
	b.ReportMetric(ms(whole), "ms-prompt")
	b.ReportMetric(float64(canceled), "canceled")
}
