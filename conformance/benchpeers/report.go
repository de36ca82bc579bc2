package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"pesti/exec/load"
)

// A report has the measurements and their circumstances, as in the JSON file.
type report struct {
	Machine machine       `json:"machine"`
	Begun   time.Time     `json:"begun"`
	Ended   time.Time     `json:"ended"`
	Load    load.Load     `json:"load"`
	Threads int           `json:"threads"`
	Repeats int           `json:"rounds"`
	Ours    program       `json:"ours"`
	Theirs  *program      `json:"theirs,omitempty"` // the first peer, or nil if none was measured
	Others  []program     `json:"others,omitempty"` // more peers
	Models  []modelReport `json:"models"`
}

// verdict returns the text that rates a speed or a time. On a busy machine that is "busy".
func (r *report) verdict(text string) string {
	if busy, _ := r.Load.Busy(); busy && text != "-" {
		return "busy"
	}
	return text
}

// A program is a program that was measured.
type program struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// A modelReport has all measurements of one model.
type modelReport struct {
	File  string     `json:"file"`
	Size  int64      `json:"size"`  // bytes of the file
	Needs int64      `json:"needs"` // bytes of our caches and arena, for the longest context measured
	Tests []measured `json:"tests"`
	Start pairedRuns `json:"start"` // seconds from the start of a process to its end after the first token
}

// A test is the task of one process: evaluate a prompt, or generate after a context.
type test struct {
	NPrompt int `json:"n_prompt"`
	NGen    int `json:"n_gen"`
	NDepth  int `json:"n_depth"`
}

func (t test) String() string {
	name := fmt.Sprintf("pp%d", t.NPrompt)
	if t.NGen > 0 {
		name = fmt.Sprintf("tg%d", t.NGen)
	}
	if t.NDepth > 0 {
		name += fmt.Sprintf(" @ d%d", t.NDepth)
	}
	return name
}

// measured is one test, in tokens per second.
type measured struct {
	test
	pairedRuns
	Read   []float64 `json:"read_bytes_s,omitempty"` // read bandwidth right before and after the runs
	Limits []limit   `json:"limits"`                 // only of generation
}

// A limit is the result of pesti bench --roofline for a test. It is measured in a process of its
// own, because its buffers would count in the peak memory.
type limit struct {
	ReadTS float64 `json:"read_ts"` // memory roofline: tokens per second if reading weights and caches were the only cost
	OfRead float64 `json:"of_read"` // our speed divided by it, in that process
}

// allowed returns the medians of the limits, 0 if none was measured.
func (m *measured) allowed() limit {
	var speeds, shares []float64
	for _, l := range m.Limits {
		speeds, shares = append(speeds, l.ReadTS), append(shares, l.OfRead)
	}
	return limit{median(speeds), median(shares)}
}

// pairedRuns are the measurements of all programs, in the order in which they were made.
type pairedRuns struct {
	Ours   samples   `json:"ours"`
	Theirs samples   `json:"theirs"`
	Others []samples `json:"others,omitempty"` // by report.Others
}

// other returns the measurements of the i-th other peer.
func (t *pairedRuns) other(i int) *samples {
	for len(t.Others) <= i {
		t.Others = append(t.Others, samples{})
	}
	return &t.Others[i]
}

// against returns our median divided by that of others, or 0 if one was not measured.
func (t *pairedRuns) against(others *samples) float64 {
	ours, theirs := t.Ours.median(), others.median()
	if ours == 0 || theirs == 0 {
		return 0
	}
	return ours / theirs
}

// ratio returns our median divided by theirs, or 0 if one was not measured.
func (t *pairedRuns) ratio() float64 { return t.against(&t.Theirs) }

// samples are measurements of one program.
type samples struct {
	Values []float64 `json:"values"`
	Peak   int64     `json:"peak"` // peak resident bytes of a process, or 0 if the system does not report them
}

// add adds the measurements of one process.
func (s *samples) add(values []float64, peak int64) {
	s.Values = append(s.Values, values...)
	s.Peak = max(s.Peak, peak)
}

func (s *samples) median() float64 { return median(s.Values) }

// median returns the median, or 0 for no values.
func median(values []float64) float64 {
	x := slices.Sorted(slices.Values(values))
	n := len(x)
	switch {
	case n == 0:
		return 0
	case n%2 == 0:
		return (x[n/2-1] + x[n/2]) / 2
	default:
		return x[n/2]
	}
}

// find returns a test of the model, or nil if it was not measured.
func (m *modelReport) find(t test) *measured {
	i := slices.IndexFunc(m.Tests, func(x measured) bool { return x.test == t })
	if i < 0 {
		return nil
	}
	return &m.Tests[i]
}

// peaks returns the peak resident bytes of each program over all tests.
func (m *modelReport) peaks() (ours, theirs int64) {
	ours, theirs = m.Start.Ours.Peak, m.Start.Theirs.Peak
	for _, t := range m.Tests {
		ours, theirs = max(ours, t.Ours.Peak), max(theirs, t.Theirs.Peak)
	}
	return ours, theirs
}

// decoding returns the tests that generate, by depth.
func (m *modelReport) decoding() []measured {
	var list []measured
	for _, t := range m.Tests {
		if t.NGen > 0 {
			list = append(list, t)
		}
	}
	slices.SortStableFunc(list, func(a, b measured) int { return cmp.Compare(a.NDepth, b.NDepth) })
	return list
}

func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: expected what -json wrote: %w", path, err)
	}
	if len(r.Models) == 0 {
		return nil, fmt.Errorf("%s: found no models, expected what -json wrote", path)
	}
	return r, nil
}
