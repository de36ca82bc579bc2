package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pesti/exec/bench"
	"pesti/exec/load"
	"pesti/exec/profile"
)

func TestBench(t *testing.T) {
	out := ok(t, "bench", "demo", "-p", "8,40", "-n", "3", "-d", "0,50", "-r", "2", "--json")
	var tests []map[string]any
	if err := json.Unmarshal([]byte(out), &tests); err != nil {
		t.Fatal(err)
	}
	want := []struct {
		test               string
		prompt, gen, depth float64
	}{
		{"pp8", 8, 0, 0}, {"pp40", 40, 0, 0}, {"tg3", 0, 3, 0},
		{"pp8 @ d50", 8, 0, 50}, {"pp40 @ d50", 40, 0, 50}, {"tg3 @ d50", 0, 3, 50},
	}
	if len(tests) != len(want) {
		t.Fatalf("bench --json prints %s", out)
	}
	for i, w := range want {
		g := tests[i]
		avg, _ := g["avg_ts"].(float64)
		dev, isNumber := g["stddev_ts"].(float64)
		samples, _ := g["samples_ts"].([]any)
		if others, ok := g["others"].(float64); runtime.GOOS == "linux" && (!ok || others < 0) || g["busy"] != nil && others <= load.Quiet {
			t.Errorf("test %d: other programs used %v processors, busy is %v", i, g["others"], g["busy"])
		}
		delete(g, "others") // reported only on some systems
		delete(g, "busy")   // set only on a busy machine
		if len(g) != 7 || g["test"] != w.test || g["n_prompt"] != w.prompt || g["n_gen"] != w.gen || g["n_depth"] != w.depth ||
			avg <= 0 || dev < 0 || !isNumber || len(samples) != 2 || math.Abs((samples[0].(float64)+samples[1].(float64))/2-avg) > 1e-6*avg {
			t.Errorf("test %d is %v, want %v", i, g, w)
		}
	}
	plan, _ := demoPlan(t)
	out = ok(t, "bench", plan, "-p", "0", "-n", "2", "-r", "1", "-t", "1")
	busy := func(line string) bool { return strings.HasPrefix(line, "tg2: busy: ") } // printed only on a busy machine
	if lines := slices.DeleteFunc(strings.Split(out, "\n"), busy); len(lines) != 3 || !strings.HasPrefix(lines[1], "tg2") || !strings.Contains(lines[1], "±") {
		t.Errorf("bench prints:\n%s", out)
	}
	pesti("bench", "demo", "-p", "33", "--ctx", "32").fails(t, 1, "33 tokens", "at most 32")
	pesti("bench", "demo", "-p", "3", "-n", "0", "-d", "30", "--ctx", "32").fails(t, 1, "pp3 @ d30", "33 tokens", "at most 32")
	pesti("bench", "demo", "-p", "3", "-d", "-1").fails(t, 2, "pp3 @ d-1", "not negative")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := (call{ctx: ctx, args: []string{"bench", "demo"}}).run(); r.code != 130 || r.out != "" || r.err != "" {
		t.Errorf("an interrupted bench: %+v", r)
	}
}

// TestBenchBusy checks that on a busy machine a test has no share and no ratio, and that the load
// is printed instead.
func TestBenchBusy(t *testing.T) {
	roof := &bench.Roofline{TokenBytes: 5, ReadTS: 4, OfRead: 0.5, ComputeTS: 8, OfCompute: 0.25, Machine: &profile.Roofline{}}
	tests := []bench.Test{
		{Name: "tg1", AvgTS: 2, Roofline: roof, Others: new(0.83), Busy: true},
		{Name: "tg2", AvgTS: 2, Roofline: roof, Others: new(0.01)},
		{Name: "tg1 x2", AvgTS: 3, Paired: &bench.Paired{PlainTS: 2, Ratio: 1.5}, Others: new(0.83), Busy: true},
	}
	var out bytes.Buffer
	a := &app{stdout: &out}
	if err := a.printBench(tests, "", false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.Contains(lines[2], "50 %") || !strings.Contains(lines[2], "25 %") || strings.Count(lines[1], "busy") != 2 ||
		strings.Contains(lines[1], "%") || !strings.HasSuffix(lines[3], "busy; 2.00 tokens/s of plain decoding") || strings.Contains(lines[3], "1.50") {
		t.Errorf("it prints\n%s", &out)
	}
	if want := "\ntg1: busy: other programs used 0.83 processors (at most 0.05 is quiet), "; strings.Count(out.String(), want) != 1 || strings.Contains(out.String(), "tg2: busy") {
		t.Errorf("it prints\n%s", &out)
	}
}

// A test that an interrupt left without a measurement has a row that says so.
func TestBenchInterrupted(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out}
	if err := a.printBench([]bench.Test{{Name: "pp64", AvgTS: 2}}, "tg16", false); err != nil {
		t.Fatal(err)
	}
	if want := "test  tokens/s\npp64  2.00 ± 0.00\ntg16  interrupted\n"; out.String() != want {
		t.Errorf("it prints %q, want %q", &out, want)
	}
}
