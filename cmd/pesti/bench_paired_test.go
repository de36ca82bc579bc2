package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/exec/bench"
)

// Paired tests follow the plain ones, with the speed of plain decoding.
func TestBenchPaired(t *testing.T) {
	tests := *decoded[[]bench.Test](t, "bench", "demo", "-p", "8", "-n", "40,1", "-d", "0,5", "-r", "1", "--sequences", "3", "--speculate", "7", "--json")
	var names []string
	for _, r := range tests {
		names = append(names, r.Name)
		if paired := r.DraftTokens > 0 || r.Sequences > 0; paired != (r.Paired != nil) {
			t.Errorf("%s: paired: %+v", r.Name, r.Paired)
		}
		if len(r.SamplesTS) != 1 || r.AvgTS <= 0 {
			t.Errorf("%s: speeds %v", r.Name, r.SamplesTS)
		}
		if r.Paired == nil {
			continue
		}
		if x := r.Paired; x.PlainTS <= 0 || x.Ratio <= 0 || x.Accepted > x.Proposed || r.DraftTokens == 0 && x.Proposed > 0 {
			t.Errorf("%s: %+v", r.Name, x)
		}
		if ratio := r.AvgTS / r.Paired.PlainTS; ratio/r.Paired.Ratio > 1.001 || r.Paired.Ratio/ratio > 1.001 {
			t.Errorf("%s: ratio %g of one run, expected %g", r.Name, r.Paired.Ratio, ratio)
		}
	}
	want := []string{
		"pp8", "tg40", "tg1", "pp8 @ d5", "tg40 @ d5", "tg1 @ d5",
		"tg40 draft7", "tg40 x3", "tg1 draft7", "tg1 x3", "tg40 @ d5 draft7", "tg40 @ d5 x3", "tg1 @ d5 draft7", "tg1 @ d5 x3",
	}
	if !slices.Equal(names, want) {
		t.Errorf("tests are %q, want %q", names, want)
	}
	pesti("bench", "demo", "-p", "0", "-n", "20", "--sequences", "3", "--ctx", "25").fails(t, 1, "test tg20 x3", "26 tokens", "at most 25")
	pesti("bench", "demo", "-p", "0", "-n", "20", "--speculate", "7", "--ctx", "115").fails(t, 1, "test tg20 draft7", "116 tokens", "at most 115")
	pesti("bench", "demo", "-p", "0", "-n", "20", "--speculate", "31").fails(t, 2, "--speculate is 31, expected at most 30")
	plan, _ := demoPlan(t)
	pesti("bench", plan, "-p", "0", "-n", "20", "--speculate", "8").fails(t, 2, "--speculate is 8, expected at most 7")
}

// The text that speculative decoding continues comes after the depth and uses positions of the
// context, too.
func TestBenchContinuesText(t *testing.T) {
	file, text := filepath.Join(t.TempDir(), "text"), strings.Repeat("Once upon a time there was a fox. ", 6)
	saveFile(t, file, text)
	var ids []int32
	if err := json.Unmarshal([]byte(call{args: []string{"tokenize", "demo", "--ids"}, stdin: text}.run().out), &ids); err != nil {
		t.Fatal(err)
	}
	tests := *decoded[[]bench.Test](t, "bench", "demo", "-p", "0", "-n", "40", "-d", "0,5", "-r", "1", "--speculate", "7", "-f", file, "--json")
	for i, depth := range []int{0, 5, len(ids), 5 + len(ids)} {
		if tests[i].NDepth != depth || (tests[i].Paired != nil) != (i > 1) {
			t.Errorf("test %s stands behind %d tokens, expected %d", tests[i].Name, tests[i].NDepth, depth)
		}
	}
	if tests[2].Paired.Proposed == 0 {
		t.Error("no draft is accepted after a text that repeats itself")
	}
	bench := []string{"bench", "demo", "-p", "0", "-n", "40", "-f", file}
	pesti(bench...).fails(t, 2, "--file", "--speculate")
	pesti(append(bench, "--speculate", "7", "--ctx", "60")...).fails(t, 1, "test tg40 draft7", "at most 60")
	pesti("bench", "demo", "--speculate", "7", "-f", file+"x").fails(t, 1, file+"x", "cannot be opened")
}
