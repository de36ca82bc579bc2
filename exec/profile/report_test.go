package profile_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pesti/exec/cpu"
	"pesti/exec/load"
	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
	"pesti/exec/profile"
)

// TestReport compares a report with figures computed by hand from made-up times, known costs of
// plantest's shapes, and a roofline of round numbers.
func TestReport(t *testing.T) {
	p := plantest.Plan(1)
	g := &p.Programs[0]
	const runs, workers = 10, 2
	times := profile.ProgramTimes{Program: g, Runs: runs, Tokens: runs, Load: plan.Workload{T: 1, R: 1, Seqs: 1}, Wall: time.Second}
	steps, logits := 0, -1
	for i := range g.Waves {
		times.Waits = append(times.Waits, []time.Duration{0, 4 * time.Millisecond})
		for j := range g.Waves[i].Steps {
			if g.Waves[i].Steps[j].Name == "logits" {
				logits = steps
			}
			times.Steps = append(times.Steps, []time.Duration{30 * time.Millisecond, 10 * time.Millisecond})
			steps++
		}
	}
	roof := &cpu.Roofline{Workers: workers, Read: 1e6, Near: 1e7, MACs: map[string]float64{"f32": 1e8, "int16": 1e6}, Wave: 1e-3}
	prof := &profile.Profile{Workers: workers, Programs: []profile.ProgramTimes{times}}
	r, err := prof.Report(p, roof)
	if err != nil {
		t.Fatal(err)
	}
	if r.Plan != plan.Digest(p) || r.Workers != workers || len(r.Programs) != 1 || len(r.Programs[0].Steps) != steps {
		t.Fatalf("a report of %+v", r)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	d := &r.Programs[0]
	waves := float64(len(g.Waves))
	near("waits", d.Waits, 0.002*waves)
	near("rest", d.Rest, 1-0.02*float64(steps)-0.002*waves)

	// 100 rows of 64: 7 units of 16 rows, of which worker 0 has 3, and worker 1 those with 52 rows.
	s := &d.Steps[logits]
	near("time of logits", s.Seconds, 0.02)
	near("share of logits", s.Share, 0.02)
	near("imbalance of logits", s.Imbalance, 0.5)
	near("bytes of logits", float64(s.Bytes), runs*(6400+2*2*76)) // both workers read the activations
	near("products of logits", float64(s.MACs), runs*6400)
	near("rate of logits", s.MACsS, runs*6400/0.02)
	moving := 6400/1e6 + (2*2*76+400)/1e7 // longer than 6400 products at 1e6 a second
	near("limit of logits", s.Limit, runs*moving)
	near("logits of limit", s.OfLimit, runs*moving/0.02)
	near("prediction of logits", s.Predicted, runs*2*(52*64/1e6+(2*76+4*52)/1e7))

	// The sums over kinds and over waves equal the sum over steps.
	var kinds, inWaves, inSteps float64
	calls := int64(0)
	for _, k := range d.Kernels {
		kinds += k.Seconds
		calls += k.Calls
	}
	for _, w := range d.Waves {
		inWaves += w.Seconds
	}
	for _, s := range d.Steps {
		inSteps += s.Seconds
	}
	near("time of kinds", kinds, inSteps)
	near("time of waves", inWaves, inSteps)
	near("calls", float64(calls), float64(runs*steps))
	for i := 1; i < len(d.Kernels); i++ {
		if d.Kernels[i].Seconds > d.Kernels[i-1].Seconds {
			t.Errorf("%s comes after a kind that took less", d.Kernels[i].Name)
		}
	}
	if d.Predicted <= runs*waves*roof.Wave {
		t.Errorf("the prediction of %v has no more than the barriers", d.Predicted)
	}

	// Without a roofline, or with times of nothing, there is no division by zero.
	times.Wall = 0
	for i := range times.Steps {
		times.Steps[i] = make([]time.Duration, workers)
	}
	prof.Programs[0] = times
	if r, err = prof.Report(p, &cpu.Roofline{}); err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Errorf("a report of nothing: %v", err)
	}
}

// TestSetLoad checks that a report of a processor gets the load, and one of a device does not.
func TestSetLoad(t *testing.T) {
	quiet, busy := load.Load{Others: new(0.01)}, load.Load{Others: new(1.5)}
	for _, c := range []struct {
		name   string
		roof   *cpu.Roofline
		l      load.Load
		others bool
		busy   bool
	}{
		{"quiet", &cpu.Roofline{Near: 1}, quiet, true, false}, {"busy", &cpu.Roofline{Near: 1}, busy, true, true},
		{"not known", &cpu.Roofline{Near: 1}, load.Load{}, false, false},
		{"a device", &cpu.Roofline{Read: 1}, busy, false, false}, {"no roofline", nil, busy, false, false},
	} {
		r := &profile.Report{Roofline: c.roof}
		r.SetLoad(c.l)
		if (r.Others != nil) != c.others || c.others && *r.Others != *c.l.Others || r.Busy != c.busy {
			t.Errorf("%s: others %v, busy %t", c.name, r.Others, r.Busy)
		}
	}
}

func TestClassShare(t *testing.T) {
	c := &profile.Counted{}
	c.Instructions[0], c.Instructions[2] = 3, 1
	for class, want := range map[int]float64{0: 0.75, 1: 0, 2: 0.25} {
		if got := c.ClassShare(class); got != want {
			t.Errorf("class %d has share %v, want %v", class, got, want)
		}
	}
	if got := (&profile.Counted{}).ClassShare(0); got != 0 {
		t.Errorf("of no instructions the share is %v, want 0", got)
	}
}
