package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// An engine describes the command lines of a measured program. Both programs print the JSON of
// llama-bench.
type engine struct {
	program
	bench func(model string, t test) []string // measures a test once, after a warm-up run
	start func(model string) []string         // prints one token after a short prompt
	limit func(model string, t test) []string // bench with the limits of the machine; nil if the program does not report them
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

// llamaCppEngine returns the engine of llama.cpp, or nil without -peer.
func (o *options) llamaCppEngine() (*engine, error) {
	if o.llamaCpp == "" {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(o.llamaCpp, "build.json"))
	if err != nil {
		return nil, fmt.Errorf("-peer: %w; expected a folder that conformance/llamacpp/build.py made", err)
	}
	var build struct {
		Package   string
		Compilers []string
	}
	if err := json.Unmarshal(text, &build); err != nil || len(build.Compilers) == 0 {
		return nil, fmt.Errorf("-peer %s: build.json has no package and compilers, expected the file that conformance/llamacpp/build.py wrote", o.llamaCpp)
	}
	folder, err := filepath.Abs(o.llamaCpp) // a command without a folder would be searched for in PATH
	if err != nil {
		return nil, err
	}
	bench, completion := filepath.Join(folder, "llama-bench"), filepath.Join(folder, "llama-completion")
	threads := strconv.Itoa(o.threads)
	return &engine{
		program: program{"llama.cpp", build.Package + ", " + build.Compilers[0]},
		bench: func(model string, t test) []string {
			return append([]string{bench, "-m", model, "-o", "json", "-r", "1", "-t", threads}, t.flags()...)
		},
		start: func(model string) []string {
			return []string{completion, "-m", model, "-p", prompt, "-n", "1", "--temp", "0", "-t", threads, "-c", strconv.Itoa(positions), "-no-cnv"}
		},
	}, nil
}

// flags returns the test as flags. Both programs have the same.
func (t test) flags() []string {
	return []string{"-p", strconv.Itoa(t.NPrompt), "-n", strconv.Itoa(t.NGen), "-d", strconv.Itoa(t.NDepth)}
}

// A benched is one test as both programs print it.
type benched struct {
	test
	Samples  []float64 `json:"samples_ts"`
	Roofline *limit    `json:"roofline"` // nil without --roofline
}

// parseBench returns the only test in the output of a program.
func parseBench(out []byte, t test) (*benched, error) {
	var found []benched
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
