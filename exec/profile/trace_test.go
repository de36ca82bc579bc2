package profile_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
	"pesti/exec/profile"
)

// TestWriteTrace: a trace of a made-up run has a name for each lane, the run, and each step of each
// worker in its lane, in microseconds.
func TestWriteTrace(t *testing.T) {
	g := &plantest.Plan(1).Programs[0]
	steps := 0
	for i := range g.Waves {
		steps += len(g.Waves[i].Steps)
	}
	run := profile.Traced{Program: g, Load: plan.Workload{T: 3, R: 1, Seqs: 1, Pos: 7}, Begin: time.Millisecond, End: 3 * time.Millisecond, Spans: make([][]profile.Span, 2)}
	for w := range run.Spans {
		for i := range steps {
			run.Spans[w] = append(run.Spans[w], profile.Span{Begin: time.Duration(i) * time.Microsecond, End: time.Duration(i+2) * time.Microsecond})
		}
	}
	var b bytes.Buffer
	if err := profile.WriteTrace(&b, []profile.Traced{run}); err != nil {
		t.Fatal(err)
	}
	var trace struct{ TraceEvents []profile.TraceEvent }
	if err := json.Unmarshal(b.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	lanes := map[int]int{}
	for _, e := range trace.TraceEvents {
		if e.Phase != "X" {
			continue
		}
		lanes[e.TID]++
		switch {
		case e.TID == 0 && (e.Time != 1000 || e.Dur != 2000 || e.Args["position"] != 7.0):
			t.Errorf("the run is %+v", e)
		case e.TID > 0 && (e.Dur != 2 || e.Time != e.Args["step"].(float64)):
			t.Errorf("a step is %+v", e)
		}
	}
	if len(trace.TraceEvents) != 3+1+2*steps || lanes[0] != 1 || lanes[1] != steps || lanes[2] != steps {
		t.Errorf("%d events, in lanes %v, expected 3 names, a run, and %d steps of two workers", len(trace.TraceEvents), lanes, steps)
	}
	if err := profile.WriteTrace(&b, nil); err == nil {
		t.Error("a trace of nothing: no error")
	}
}

// TestStepTimes reads measured times, and of counts the predictions. It refuses other JSON and other
// plans.
func TestStepTimes(t *testing.T) {
	p := plantest.Plan(1)
	head := `{"plan": "` + plan.Digest(p) + `", `
	for _, c := range []struct {
		text string
		want float64
	}{
		{head + `"programs": [{"program": "decode", "steps": [{"step": 0, "seconds": 2, "predicted": 1}]}]}`, 2},
		{head + `"gpu": {}, "programs": [{"program": "decode", "steps": [{"step": 0, "predicted": 1}]}]}`, 1},
	} {
		if times, err := profile.StepTimes([]byte(c.text), p); err != nil || len(times["decode"]) != 1 || times["decode"][0] != c.want {
			t.Errorf("%s: %v, %v, want %v", c.text, times, err, c.want)
		}
	}
	for text, words := range map[string]string{
		"{}": "is no profile", "x": "is no profile", `{"plan": "sha256:0"}`: "of another plan",
		head + `"programs": [{"program": "decode", "steps": [{"step": 1}]}]}`:                "expected step 0",
		head + `"programs": [{"program": "decode", "steps": [{"step": 0, "seconds": -1}]}]}`: "expected step 0",
	} {
		if _, err := profile.StepTimes([]byte(text), p); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
}
