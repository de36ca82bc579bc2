package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestBench(t *testing.T) {
	out := ok(t, "bench", "demo", "-p", "8,40", "-n", "3", "-r", "2", "--json")
	var tests []map[string]any
	if err := json.Unmarshal([]byte(out), &tests); err != nil {
		t.Fatal(err)
	}
	want := []struct {
		test        string
		prompt, gen float64
	}{{"pp8", 8, 0}, {"pp40", 40, 0}, {"tg3", 0, 3}}
	if len(tests) != len(want) {
		t.Fatalf("bench --json prints %s", out)
	}
	for i, w := range want {
		g := tests[i]
		avg, _ := g["avg_ts"].(float64)
		dev, isNumber := g["stddev_ts"].(float64)
		if len(g) != 5 || g["test"] != w.test || g["n_prompt"] != w.prompt || g["n_gen"] != w.gen || avg <= 0 || dev < 0 || !isNumber {
			t.Errorf("test %d is %v, want %v", i, g, w)
		}
	}
	plan, _ := demoPlan(t)
	out = ok(t, "bench", plan, "-p", "0", "-n", "2", "-r", "1", "-t", "1")
	if lines := strings.Split(out, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], "tg2") || !strings.Contains(lines[1], "±") {
		t.Errorf("bench prints:\n%s", out)
	}
	pesti("bench", "demo", "-p", "33", "--ctx", "32").fails(t, 1, "33 tokens", "at most 32")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := (call{ctx: ctx, args: []string{"bench", "demo"}}).run(); r.code != 130 || r.out != "" || r.err != "" {
		t.Errorf("an interrupted bench: %+v", r)
	}
}

// Of a test that an interrupt left without a measurement there is a row that says so.
func TestBenchInterrupted(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out}
	if err := a.printBench([]benchResult{{Test: "pp64", AvgTS: 2}}, "tg16", false); err != nil {
		t.Fatal(err)
	}
	if want := "test  tokens/s\npp64  2.00 ± 0.00\ntg16  interrupted\n"; out.String() != want {
		t.Errorf("it prints %q, want %q", &out, want)
	}
}

func TestMeanAndDeviation(t *testing.T) {
	for _, c := range []struct {
		x         []float64
		mean, dev float64
	}{
		{[]float64{3}, 3, 0},
		{[]float64{2, 4}, 3, math.Sqrt2},
		{[]float64{1, 2, 3, 4, 5}, 3, math.Sqrt(2.5)},
	} {
		if mean, dev := meanAndDeviation(c.x); math.Abs(mean-c.mean) > 1e-12 || math.Abs(dev-c.dev) > 1e-12 {
			t.Errorf("meanAndDeviation(%v) = %v, %v, want %v, %v", c.x, mean, dev, c.mean, c.dev)
		}
	}
}
