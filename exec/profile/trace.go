package profile

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"pesti/exec/plan"
)

// A TraceEvent is an event of the Trace Event Format (Google, "Trace Event Format", 2016). Phase "X" is an
// interval, "M" the name of a lane. Times are in microseconds.
type TraceEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	Time  float64        `json:"ts"`
	Dur   float64        `json:"dur"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args"`
}

// WriteTrace writes runs in the Trace Event Format, which chrome://tracing and ui.perfetto.dev read: a lane
// for the runs and one for each worker.
func WriteTrace(w io.Writer, runs []Traced) error {
	if len(runs) == 0 {
		return fmt.Errorf("nothing ran, expected at least one token to trace")
	}
	// Events are written one by one: there may be a million.
	first := true
	event := func(e TraceEvent) error {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		head := ",\n"
		if first {
			head, first = "{\"TraceEvents\":[\n", false
		}
		_, err = fmt.Fprintf(w, "%s%s", head, text)
		return err
	}
	for lane := range len(runs[0].Spans) + 1 {
		name := "runs"
		if lane > 0 {
			name = fmt.Sprint("worker ", lane-1)
		}
		if err := event(TraceEvent{Name: "thread_name", Phase: "M", PID: 1, TID: lane, Args: map[string]any{"name": name}}); err != nil {
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
func traceRun(r *Traced, event func(TraceEvent) error) error {
	l := &r.Load
	err := event(spanning(Span{Begin: r.Begin, End: r.End}, TraceEvent{Name: r.Program.Name, Cat: "run",
		Args: map[string]any{"tokens": l.T, "rows": l.R, "sequences": l.Seqs, "position": l.Pos}}))
	if err != nil {
		return err
	}
	for wave, st := range r.Program.Steps() {
		for worker, spans := range r.Spans {
			if err := event(spanning(spans[st.ID], stepEvent(st, wave, worker+1))); err != nil {
				return err
			}
		}
	}
	return nil
}

func stepEvent(st *plan.Step, wave, lane int) TraceEvent {
	return TraceEvent{Name: st.Name, Cat: st.Kernel, TID: lane,
		Args: map[string]any{"wave": wave, "step": st.ID, "layer": st.Layer, "kernel": st.Kernel}}
}

// spanning returns the event with a span's time.
func spanning(s Span, e TraceEvent) TraceEvent {
	e.Phase, e.PID = "X", 1
	e.Time = float64(s.Begin) / float64(time.Microsecond)
	e.Dur = float64(s.End-s.Begin) / float64(time.Microsecond)
	return e
}
