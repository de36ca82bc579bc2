package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// An engine describes the command lines of a measured program. All programs print the JSON of
// llama-bench.
type engine struct {
	program
	bench  func(model string, t test) []string // measures a test once, after a warm-up run
	start  func(model string) []string         // prints one token after a short prompt; nil if the program does not
	prints func(t test) test                   // how the program names a test; nil if as we do
	limit  func(model string, t test) []string // bench with the limits of the machine; nil if the program does not report them
}

const (
	prompt    = "Once upon a time"
	positions = 4096 // context length of start
)

// pestiEngine returns the engine of pesti.
func (o *options) pestiEngine(ctx context.Context) (*engine, error) {
	c, err := runChild(ctx, []string{o.pesti, "version"})
	if err != nil {
		return nil, err
	}
	version := strings.TrimSpace(string(c.out))
	if o.commit != "" {
		version += " " + o.commit
	}
	threads := strconv.Itoa(o.threads)
	bench := func(model string, t test) []string {
		room := strconv.Itoa(max(positions, t.NPrompt+t.NGen+t.NDepth))
		return append([]string{o.pesti, "bench", model, "--json", "-r", "1", "-t", threads, "-c", room}, t.flags()...)
	}
	return &engine{
		program: program{"pesti", version},
		bench:   bench,
		limit: func(model string, t test) []string {
			return append(bench(model, t), "--roofline")
		},
		start: func(model string) []string {
			return []string{o.pesti, "run", model, "-p", prompt, "-n", "1", "--temp", "0", "-t", threads, "-c", strconv.Itoa(positions)}
		},
	}, nil
}

// flags returns the test as flags. pesti and llama.cpp have the same.
func (t test) flags() []string {
	return []string{"-p", strconv.Itoa(t.NPrompt), "-n", strconv.Itoa(t.NGen), "-d", strconv.Itoa(t.NDepth)}
}

// A benched is one test as the programs print it.
type benched struct {
	test
	Build    string    `json:"build_commit"` // of a llama-bench
	Number   int       `json:"build_number"`
	Samples  []float64 `json:"samples_ts"`
	Roofline *limit    `json:"roofline"` // nil without --roofline
}

// parseBench returns the only test in the output of a program. Lines before the JSON are messages.
func parseBench(out []byte, t test) (*benched, error) {
	var found []benched
	if i := bytes.Index(out, []byte("\n[\n")); i >= 0 {
		out = out[i:]
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, err
	}
	if len(found) != 1 || found[0].test != t || len(found[0].Samples) == 0 {
		return nil, fmt.Errorf("found %+v, expected samples_ts of %s alone", found, t)
	}
	return &found[0], nil
}

// needs returns the bytes of our caches and arena for a context length.
func (o *options) needs(ctx context.Context, model string, room int) (int64, error) {
	c, err := runChild(ctx, []string{o.pesti, "inspect", model, "--memory", "--json", "--precision", "fast", "-t", strconv.Itoa(o.threads), "-c", strconv.Itoa(room)})
	if err != nil {
		return 0, err
	}
	var found struct {
		Plans []struct {
			Precision         string
			Ctx, State, Arena int64
		}
	}
	if err := json.Unmarshal(c.out, &found); err != nil {
		return 0, fmt.Errorf("%s inspect --memory: %w", o.pesti, err)
	}
	for _, p := range found.Plans {
		if p.Precision == "fast" && p.Ctx == int64(room) {
			return p.State + p.Arena, nil
		}
	}
	return 0, fmt.Errorf("%s inspect --memory: found no plan in precision fast for a context of %d", o.pesti, room)
}
