package exec_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
	"pesti/exec/profile"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/lower"
)

// A spy is the virtual driver. It keeps the opened device, and can hide the counts of the device.
type spy struct {
	*virtual.Driver
	device *virtual.Device
	mute   bool
}

func (s *spy) Open(number int) (cuda.Device, error) {
	d, err := s.Driver.Open(number)
	if err != nil {
		return nil, err
	}
	s.device = d.(*virtual.Device)
	if s.mute {
		return struct{ cuda.Device }{d}, nil
	}
	return d, nil
}

// on opens the embedded model on the virtual device.
func (s *spy) on(t *testing.T, run exec.Options) (*exec.Engine, *exec.Session) {
	t.Helper()
	s.Driver = virtual.New(virtual.Config{})
	run.Driver = s
	e, err := openDemo(t, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, session(t, e)
}

// openDemo opens the embedded model for CUDA devices.
func openDemo(t *testing.T, run exec.Options) (*exec.Engine, error) {
	t.Helper()
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	res, err := lower.Compile(m, lower.Options{Target: "cuda", Precision: "fast", Ctx: 128})
	if err != nil {
		t.Fatal(err)
	}
	return exec.Open(res.Plan, f, run)
}

// TestCountProfile checks that a profile in counts does not change a bit, is reproducible, and that its
// sums over steps and over kernels are the counts of the device.
func TestCountProfile(t *testing.T) {
	_, plain := new(spy).on(t, exec.Options{})
	var before *profile.CountReport
	for range 2 {
		s := &spy{}
		e, profiled := s.on(t, exec.Options{Profile: true})
		tokens := int64(0)
		for _, n := range []int{1, 3, 64} { // a step of each program
			if n == 64 && testing.Short() {
				continue // slow under the race detector
			}
			tokens += int64(n) + 1
			profiled.Reset()
			plain.Reset()
			got := feed(t, profiled, prompt(n))
			feed(t, profiled, prompt(1)) // a token that sees the earlier ones
			if n < 64 && before == nil && !slices.Equal(got, feed(t, plain, prompt(n))) {
				t.Errorf("%d tokens: logits differ with a profile", n)
			}
		}
		gpu, _ := cuda.LookupGPU("t4")
		r, err := e.Profile().CountReport(e.Plan(), gpu)
		if err != nil || !e.Profile().Counted {
			t.Fatalf("no counts: %v", err)
		}
		totals := map[string]cuda.Counts{}
		var all cuda.Counts
		for _, c := range s.device.Counters() {
			totals[c.Kernel] = c
			all.Add(&c, 1)
		}
		var ofSteps, ofPrograms cuda.Counts
		for i := range r.Programs {
			p := &r.Programs[i]
			tokens -= p.Tokens
			ofPrograms.Add(&p.Total.Counts, 1)
			seconds, share := 0.0, 0.0
			for k := range p.Steps {
				ofSteps.Add(&p.Steps[k].Counts, 1)
				seconds += p.Steps[k].Predicted
			}
			for k := range p.Kernels {
				c := totals[p.Kernels[k].Kernel]
				c.Add(&p.Kernels[k].Counts, -1)
				totals[c.Kernel] = c
				share += p.Kernels[k].Share
			}
			if math.Abs(seconds/p.Total.Predicted-1) > 1e-9 || math.Abs(share-1) > 1e-9 {
				t.Errorf("%s: steps of %v s, and %v s in all; shares of %v", p.Program, seconds, p.Total.Predicted, share)
			}
			if p.Total.Needed <= 0 || p.TokensS > p.MemoryTS || p.TokensS <= 0 {
				t.Errorf("%s: %d bytes needed, %v tokens a second predicted, %v by memory", p.Program, p.Total.Needed, p.TokensS, p.MemoryTS)
			}
			// Decoding is limited by memory, and fetches little more than weights and caches.
			if got := float64(p.Total.Fetched) / float64(p.Total.Needed); p.Program == "decode" && (got < 1 || got > 1.1) {
				t.Errorf("a token fetches %.3f times the weights and caches", got)
			}
		}
		if tokens != 0 || ofSteps != all || ofPrograms != all {
			t.Errorf("%d tokens are missing; counts of steps\n%+v, of programs\n%+v, and the device's\n%+v", tokens, ofSteps, ofPrograms, all)
		}
		for name, left := range totals {
			if left != (cuda.Counts{Kernel: name}) {
				t.Errorf("%s: what the profile has of it differs from what the device counted by %+v", name, left)
			}
		}
		if before != nil && !reflect.DeepEqual(before, r) {
			t.Error("two profiles of the same steps differ")
		}
		before = r
		if e.ResetProfile(); len(e.Profile().Programs) != 0 {
			t.Error("there is a profile after a reset")
		}
		feed(t, profiled, prompt(1))
		for i, step := range e.Profile().Programs[0].Counts {
			for _, c := range step {
				if c.Launches != 1 {
					t.Errorf("after a reset and one run step %d has launched %s %d times", i, c.Kernel, c.Launches)
				}
			}
		}
	}
	_, err := openDemo(t, exec.Options{Driver: virtual.New(virtual.Config{}), Trace: 1})
	if err == nil || !strings.Contains(err.Error(), "has no clock") {
		t.Errorf("a trace of a device without time: %v", err)
	}
}

// TestEventProfile checks that on a device without counts, events give the begin and end of each step, in
// order and within the time of the run.
func TestEventProfile(t *testing.T) {
	s := &spy{mute: true}
	e, profiled := s.on(t, exec.Options{Profile: true, Trace: 8})
	for _, n := range []int{1, 3, 1} {
		feed(t, profiled, prompt(n))
	}
	if runs := e.Trace(); len(runs) != 3 {
		t.Errorf("a trace of %d runs, want 3", len(runs))
	} else {
		for _, r := range runs {
			at := r.Begin
			for i, span := range r.Spans[0] {
				if span.Begin < at || span.End < span.Begin || span.End > r.End+time.Millisecond {
					t.Errorf("%s: step %d from %v to %v, after one that ended at %v, in a run that ends at %v", r.Program.Name, i, span.Begin, span.End, at, r.End)
				}
				at = span.End - time.Microsecond // times of events are float32
			}
		}
	}
	p := e.Profile()
	for i := range p.Programs {
		g := &p.Programs[i]
		var busy time.Duration
		for _, step := range g.Steps {
			busy += step[0]
		}
		if len(g.Steps[0]) != 1 || busy <= 0 || busy > g.Wall+time.Millisecond {
			t.Errorf("%s: %d workers, busy for %v of %v", g.Program.Name, len(g.Steps[0]), busy, g.Wall)
		}
	}
	properties := *p.Device
	properties.Bandwidth = 1e12
	r, err := p.Report(e.Plan(), profile.DeviceRoofline(&properties))
	if err != nil {
		t.Fatal(err)
	}
	g := &r.Programs[len(r.Programs)-1]
	needed := int64(0)
	limit := 0.0
	for _, k := range g.Kernels {
		needed += k.Bytes
		limit += k.Limit
	}
	if limit <= 0 || limit > float64(needed)/1e12 || g.Predicted < limit*(1-1e-9) {
		t.Errorf("%s: %d bytes at 1 TB/s take %v s at least, predicted %v", g.Program, needed, limit, g.Predicted)
	}
}
