package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"pesti/exec"
	"pesti/exec/plan"
)

// A traceEvent is one of the Trace Event Format (Google, "Trace Event Format", 2016): "X" is something that
// took a while, "M" says what a lane is called. Times are in microseconds.
type traceEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	Time  float64        `json:"ts"`
	Dur   float64        `json:"dur"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args"`
}

// writeTrace writes runs with a lane for each worker, and above them one for the runs.
func writeTrace(w io.Writer, runs []exec.Traced) error {
	if len(runs) == 0 {
		return fmt.Errorf("nothing ran, expected a token at least to trace")
	}
	// Events are written one by one: there may be a million.
	first := true
	event := func(e traceEvent) error {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		head := ",\n"
		if first {
			head, first = "{\"traceEvents\":[\n", false
		}
		_, err = fmt.Fprintf(w, "%s%s", head, text)
		return err
	}
	for lane := range len(runs[0].Spans) + 1 {
		name := "runs"
		if lane > 0 {
			name = fmt.Sprint("worker ", lane-1)
		}
		if err := event(traceEvent{Name: "thread_name", Phase: "M", PID: 1, TID: lane, Args: map[string]any{"name": name}}); err != nil {
			return err
		}
	}
	for i := range runs {
		if err := traceRun(&runs[i], event); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "\n]}\n")
	return err
}

// traceRun writes one run: its own event, then those of its steps.
func traceRun(r *exec.Traced, event func(traceEvent) error) error {
	l := &r.Load
	err := event(spanning(exec.Span{Begin: r.Begin, End: r.End}, traceEvent{Name: r.Program.Name, Cat: "run",
		Args: map[string]any{"tokens": l.T, "rows": l.R, "sequences": l.Seqs, "position": l.Pos}}))
	if err != nil {
		return err
	}
	for wave := range r.Program.Waves {
		for j := range r.Program.Waves[wave].Steps {
			st := &r.Program.Waves[wave].Steps[j]
			for worker, spans := range r.Spans {
				if err := event(spanning(spans[st.ID], stepEvent(st, wave, worker+1))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func stepEvent(st *plan.Step, wave, lane int) traceEvent {
	return traceEvent{Name: st.Name, Cat: st.Kernel, TID: lane,
		Args: map[string]any{"wave": wave, "step": st.ID, "layer": st.Layer, "kernel": st.Kernel}}
}

// spanning returns the event with its time.
func spanning(s exec.Span, e traceEvent) traceEvent {
	e.Phase, e.PID = "X", 1
	e.Time = float64(s.Begin) / float64(time.Microsecond)
	e.Dur = float64(s.End-s.Begin) / float64(time.Microsecond)
	return e
}
