package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pesti/exec/bench"
	"pesti/exec/cpu"
	planfile "pesti/exec/plan"
	"pesti/exec/profile"
)

// profileOf reads a profile.
func profileOf(t *testing.T, path string) *profile.Report {
	t.Helper()
	r := &profile.Report{}
	if err := json.Unmarshal([]byte(readFile(t, path)), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestProfile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "run.json")
	prompt := []string{"run", "demo", "-p", "Once upon a time", "-n", "5", "--temp", "0"}
	plain := ok(t, prompt...)
	r := pesti(append(prompt, "--profile", file)...)
	if r.code != 0 || r.out != plain {
		t.Fatalf("with a profile the text is %q, without %q: %s", r.out, plain, r.err)
	}
	for _, word := range []string{"roofline of", "decode: 4 runs, together 4 tokens, in ", "small: 1 run of 4 tokens in ", "waiting at barriers", "matmul_group", "attention"} {
		if !strings.Contains(r.err, word) {
			t.Errorf("the table lacks %q:\n%s", word, r.err)
		}
	}
	if strings.Contains(r.err, "blk.0.ffn_gated") {
		t.Errorf("the table has steps, for which nobody asked:\n%s", r.err)
	}
	rep := profileOf(t, file)
	if rep.Roofline == nil || rep.Roofline.Read <= 0 || len(rep.Programs) != 2 {
		t.Fatalf("the profile is %+v", rep)
	}
	for _, g := range rep.Programs {
		sum := g.Waits + g.Rest
		for _, k := range g.Kernels {
			sum += k.Seconds
		}
		if math.Abs(sum-g.Seconds) > 1e-6 || g.Rest < 0 || g.Predicted <= 0 || len(g.Steps) != 37 {
			t.Errorf("%s: %v s that passed, and parts of %v; %v rest, %v predicted, %d steps", g.Program, g.Seconds, sum, g.Rest, g.Predicted, len(g.Steps))
		}
	}
	if r := pesti(append(prompt, "--profile", file, "--profile-steps")...); r.code != 0 || !strings.Contains(r.err, "blk.0.ffn_out.x  gated") {
		t.Errorf("--profile-steps prints no steps: %+v", r)
	}

	benched := filepath.Join(dir, "bench.json")
	out := ok(t, "bench", "demo", "-p", "0", "-n", "3", "-r", "2", "--profile", benched)
	if rep := profileOf(t, benched); len(rep.Programs) != 1 || rep.Programs[0].Runs != 6 || rep.Plan == "" || !strings.Contains(out, "decode: 6 runs") {
		t.Errorf("bench profiles %+v and prints\n%s", rep.Programs, out)
	}
	out = ok(t, "bench", "demo", "-p", "0", "-n", "4", "-d", "64", "-r", "1", "--sequences", "2", "--profile")
	if !strings.Contains(out, "decode: 8 runs, together 12 tokens, in ") || strings.Contains(out, "prefill:") || strings.Contains(out, "small:") {
		t.Errorf("a profile of 4 tokens behind others, and of 8 in two sequences, is\n%s", out)
	}
	var tests []bench.Test
	if err := json.Unmarshal([]byte(ok(t, "bench", "demo", "-p", "0", "-n", "1", "-r", "1", "--json", "--profile", benched)), &tests); err != nil || len(tests) != 1 {
		t.Errorf("with a profile, --json prints no JSON: %v", err)
	}

	folder := t.TempDir()
	for _, c := range []struct {
		args  string
		code  int
		words string
	}{
		{"--profile-steps", 2, "expected --profile"},
		{"--gpu t4 --profile", 2, "expected --profile and --device virtual"},
		{"--profile " + folder, 1, folder + ": is a folder"},
		{"--profile " + filepath.Join(folder, "no", "x"), 1, "cannot be written"},
		{"--trace " + filepath.Join(folder, "no", "x"), 1, "cannot be written"},
		{"--trace-runs 0", 2, "--trace-runs"},
		{"--trace x --trace-runs 5000", 2, "expected at most 4096"},
		{"--profile " + demoFile(t, nil), 2, "is a GGUF model"},
	} {
		pesti(append([]string{"run", "demo", "-p", "x", "-n", "1"}, strings.Fields(c.args)...)...).fails(t, c.code, c.words)
	}
}

// TestBusyProfile checks that a profile of a busy machine has no fraction of the limit, and says why.
func TestBusyProfile(t *testing.T) {
	others := 1.25
	r := &profile.Report{Workers: 2, Roofline: &profile.Roofline{Read: 1e10, Near: 1e11}, Programs: []profile.ProgramReport{{
		Program: "decode", Runs: 2, Tokens: 2, Seconds: 1,
		Kernels: []profile.Measured{{Name: "gated_mlp", Calls: 2, Seconds: 0.5, OfLimit: 1.78}},
		Steps:   []profile.Measured{{Name: "blk.0", Calls: 2, Seconds: 0.5, OfLimit: 1.78}},
	}}}
	for _, busy := range []bool{false, true} {
		if r.Busy = busy; busy {
			r.Others = &others
		}
		var b strings.Builder
		if err := printProfile(&b, r, true); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if strings.Contains(text, "178 %") == busy || strings.Contains(text, "\nbusy: other programs used 1.25 processors (at most 0.05 is quiet)") != busy {
			t.Errorf("with busy = %v the profile is\n%s", busy, text)
		}
	}
}

// TestProfileOfCounts checks that a profile of the virtual device has reproducible counts of
// kernels, and that dot colors a plan by the predictions.
func TestProfileOfCounts(t *testing.T) {
	dir := t.TempDir()
	plan, file := filepath.Join(dir, "cuda.plan"), filepath.Join(dir, "counts.json")
	ok(t, "compile", "demo", "--target", "cuda", "--ctx", "128", "-o", plan)
	bench := []string{"bench", plan, "--device", "virtual", "-p", "3", "--profile"}
	out := ok(t, bench...)
	for _, words := range []string{"predicted for H200", "decode: 1 run of 1 tokens;", "small: 1 run of 3 tokens;", "memory allows", "gemv_1", "sectors", "passes", "dp4a"} {
		if !strings.Contains(out, words) {
			t.Errorf("the table lacks %q:\n%s", words, out)
		}
	}
	for _, words := range []string{"tokens/s\n", "±", "blk.0.ffn"} {
		if strings.Contains(out, words) {
			t.Errorf("the table has %q:\n%s", words, out)
		}
	}
	r := decoded[profile.CountReport](t, append(bench, file, "--json", "--gpu", "T4")...)
	var again profile.CountReport
	if err := json.Unmarshal([]byte(readFile(t, file)), &again); err != nil || !reflect.DeepEqual(*r, again) || r.GPU.Name != "T4" || len(r.Programs) != 2 {
		t.Errorf("--json prints %+v, the file of %+v, %v", r, again, err)
	}
	steps := r.Programs[0].Steps
	if first := steps[1]; first.Name != "blk.0.q" || first.Launches != 1 || first.Predicted <= 0 || first.Fetched < first.Needed {
		t.Errorf("the first product is %+v", first)
	}
	picture := ok(t, "dot", plan, "--profile", file)
	if picture == ok(t, "dot", plan) || !strings.Contains(picture, "% of the time") {
		t.Error("dot --profile shows no time")
	}
	if r := pesti("run", plan, "--device", "virtual", "-p", "Once", "-n", "1", "--temp", "0", "--profile", "--profile-steps"); r.code != 0 || !strings.Contains(r.err, "blk.0.out  cuda.gemv") {
		t.Errorf("run --profile --profile-steps: %+v", r)
	}
	for args, words := range map[string]string{
		"--gpu t4":          "expected --profile and --device virtual",
		"--profile --gpu x": "h200",
		"--trace x":         "the virtual device has none",
	} {
		pesti(append([]string{"bench", plan, "--device", "virtual", "-p", "0", "-n", "1"}, strings.Fields(args)...)...).fails(t, 2, words)
	}
}

// TestWithoutFile checks that --profile takes the next argument as its value unless that is a flag
// or missing.
func TestWithoutFile(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "run": "run", "run --profile": "run --profile=", "run --profile x -n 1": "run --profile x -n 1",
		"run --profile -n 1": "run --profile= -n 1", "run -- --profile": "run -- --profile", "run --profile=x": "run --profile=x",
	} {
		if got := withoutFile(strings.Fields(in)); strings.Join(got, " ") != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// TestDotProfile draws a plan by the time of its steps, and refuses profiles of others.
func TestDotProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	plan, _ := demoPlan(t)
	if r := pesti("run", plan, "-p", "Once", "-n", "3", "--profile", file); r.code != 0 {
		t.Fatal(r.err)
	}
	plain := ok(t, "dot", "demo")
	for _, model := range []string{"demo", plan} { // a profile applies to both, since they are the same plan
		out := ok(t, "dot", model, "--profile", file)
		if out == plain || !strings.Contains(out, "% of the time") || !strings.Contains(out, "20 % of the time or more") && !strings.Contains(out, "10 %") {
			t.Errorf("dot %s --profile shows no time", model)
		}
	}
	pesti("dot", "demo", "--ctx", "64", "--profile", file).fails(t, 1, file, "of another plan", "found sha256:", "expected sha256:")
	pesti("dot", "demo", "--program", "prefill", "--profile", file).fails(t, 2, `program "prefill" has 37 steps`)
	pesti("dot", "demo", "--view", "memory", "--profile", file).fails(t, 2, "--profile")
	pesti("dot", "demo", "--stage", "fused", "--profile", file).fails(t, 2, "--profile")
	pesti("dot", "demo", "--profile", plan).fails(t, 1, plan, "is no profile")
	pesti("dot", "demo", "--profile", filepath.Join(t.TempDir(), "none")).fails(t, 1, "cannot be opened")

	p, err := planfile.Parse([]byte(readFile(t, plan)))
	if err != nil {
		t.Fatal(err)
	}
	for _, steps := range []string{`[{"step": 1}]`, `[{"step": 0, "seconds": -1}]`} {
		text := `{"plan": "` + planfile.Digest(p) + `", "programs": [{"program": "decode", "steps": ` + steps + `}]}`
		saveFile(t, file, text)
		pesti("dot", "demo", "--profile", file).fails(t, 1, file, "expected step 0")
	}
}

// TestTraceFile checks that a trace is JSON and that the events of a lane do not overlap.
func TestTraceFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.json")
	if r := pesti("run", "demo", "-p", "Once upon a time", "-n", "6", "-t", "2", "--trace", file, "--trace-runs", "3"); r.code != 0 || r.err != "" {
		t.Fatalf("a trace alone says %q", r.err)
	}
	var trace struct{ TraceEvents []profile.TraceEvent }
	if err := json.Unmarshal([]byte(readFile(t, file)), &trace); err != nil {
		t.Fatal(err)
	}
	lanes := map[int]string{}
	ends := map[int]float64{}
	events := map[int]int{}
	waves := map[int]float64{}
	for i, e := range trace.TraceEvents {
		switch e.Phase {
		case "M":
			lanes[e.TID] = e.Args["name"].(string)
		case "X":
			if events[e.TID]++; e.Time < ends[e.TID] || e.Dur < 0 {
				t.Errorf("event %d, %s, begins at %v in lane %q, which ends at %v", i, e.Name, e.Time, lanes[e.TID], ends[e.TID])
			}
			ends[e.TID] = e.Time + e.Dur
			if e.TID == 0 {
				waves = map[int]float64{}
				continue
			}
			wave := e.Args["wave"].(float64)
			if wave < waves[e.TID] || e.Name == "" || e.Args["kernel"] == "" {
				t.Errorf("event %d is %+v, after one of wave %v", i, e, waves[e.TID])
			}
			waves[e.TID] = wave
		default:
			t.Errorf("event %d is of phase %q", i, e.Phase)
		}
	}
	workers := min(2, cpu.UsableCores())
	wantLanes, wantEvents := map[int]string{0: "runs"}, map[int]int{0: 3}
	for w := range workers {
		wantLanes[w+1], wantEvents[w+1] = fmt.Sprintf("worker %d", w), 3*37
	}
	if !maps.Equal(lanes, wantLanes) || !maps.Equal(events, wantEvents) {
		t.Errorf("lanes %v with events %v, expected runs and %d workers with 3 runs of 37 steps", lanes, events, workers)
	}
}

// TestBenchRoofline checks that limits follow from the bytes that tokens read.
func TestBenchRoofline(t *testing.T) {
	out := ok(t, "bench", "demo", "-p", "40", "-n", "4", "-d", "8", "-r", "2", "--roofline", "--json", "-t", "1")
	var tests []bench.Test
	if err := json.Unmarshal([]byte(out), &tests); err != nil {
		t.Fatal(err)
	}
	plan, _ := demoPlan(t, "-t", "1")
	p, err := planfile.Parse([]byte(readFile(t, plan)))
	if err != nil || len(tests) != 2 {
		t.Fatalf("%d tests, %v", len(tests), err)
	}
	for _, x := range tests {
		r := x.Roofline
		if r == nil || r.Machine == nil || r.ReadTS <= 0 || r.ComputeTS <= 0 {
			t.Fatalf("%s: the roofline is %+v", x.Name, r)
		}
		if want := cpu.Median(x.SamplesTS) / r.ReadTS; math.Abs(r.OfRead-want) > 1e-9 {
			t.Errorf("%s reaches %v of reading, want %v", x.Name, r.OfRead, want)
		}
	}
	// A token reads all weights, one row of the embeddings, and the caches up to its own position.
	r := tests[1].Roofline
	var weights int64
	for _, w := range p.Weights {
		weights += max(w.Size, w.Packed)
	}
	if slack := p.Memory.State + weights/50; r.TokenBytes < weights-weights/50 || r.TokenBytes > weights+slack {
		t.Errorf("a token reads %d bytes, and weights have %d", r.TokenBytes, weights)
	}
	if want := r.Machine.Read / float64(r.TokenBytes); math.Abs(r.ReadTS/want-1) > 1e-3 {
		t.Errorf("reading allows %v tokens, want %v", r.ReadTS, want)
	}
	both := ok(t, "bench", "demo", "-p", "0", "-n", "1", "-r", "1", "--roofline", "--speculate", "2")
	lines := strings.Split(both, "\n")
	if at := strings.Index(lines[2], "of plain decoding"); at < strings.LastIndex(lines[0], "reached") {
		t.Errorf("the ratio of a paired test is in a column of the roofline:\n%s", both)
	}
	for _, args := range []string{"--profile -d 0,8", "--profile --json"} {
		pesti(append([]string{"bench", "demo", "-n", "1"}, strings.Fields(args)...)...).fails(t, 2, "--profile")
	}
	table := ok(t, "bench", "demo", "-p", "0", "-n", "1", "-r", "1", "--roofline")
	for _, words := range []string{"reading allows", "the machine's", "GB/s of"} {
		if !strings.Contains(table, words) {
			t.Errorf("bench --roofline does not print %q:\n%s", words, table)
		}
	}
}
