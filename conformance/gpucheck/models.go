package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A subject is a model on the device, with a folder for what pesti writes.
type subject struct {
	*options
	model, dir, isa string
	bandwidth       float64 // of the device's memory, bytes per second; 0 where unknown
	token           int64   // bytes that a token reads: weights and cache
}

// pesti runs the program and returns its standard output.
func (s *subject) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.pesti, args...)
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("pesti %s: %w: %s", strings.Join(args, " "), err, says.Bytes())
	}
	return out, nil
}

// decoded runs the program and reads the JSON that it prints.
func (s *subject) decoded(ctx context.Context, to any, args ...string) error {
	out, err := s.run(ctx, args...)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, to)
}

// onDevice are the options of a verb that compiles for the device and runs there.
func (s *subject) onDevice(args ...string) []string {
	return append(args, "--target", "cuda", "--isa", s.isa, "--device", s.device)
}

// prompt is what all models are asked to continue.
const prompt = "The quick brown fox jumps over the lazy dog. Once upon a time there was a small"

// bounds are how far the device may be from the processor in precision exact, by d of any layer, and
// in fast from exact, by the mean divergence of the logits.
const (
	exactD = "1e-4"
	fastKL = "1e-3"
)

// checkModel makes the checks of one model.
func checkModel(ctx context.Context, r *report, o *options, model string) {
	name := strings.TrimSuffix(filepath.Base(model), ".gguf") + ": "
	p := r.Properties
	s := &subject{options: o, model: model, isa: isaFor(p.Major, p.Minor), bandwidth: r.bandwidth()}
	if !r.run(ctx, name+"folder", func(found) (err error) {
		s.dir, err = os.MkdirTemp("", "gpucheck")
		return err
	}) {
		return
	}
	defer os.RemoveAll(s.dir)
	for _, c := range []struct {
		name  string
		check func(context.Context, found) error
	}{
		{"plan", s.checkPlan},
		{"exact, layer by layer", s.checkExact},
		{"exact, 32 tokens", s.checkTokens},
		{"fast, logits", s.checkFast},
		{"speed", s.checkSpeed},
	} {
		r.run(ctx, name+c.name, func(f found) error { return c.check(ctx, f) })
	}
}

// bandwidth returns that of the device's memory, bytes per second: what the device tells of, or else
// what a copy came to.
func (r *report) bandwidth() float64 {
	if told := r.Properties.Bandwidth; told > 0 {
		return float64(told)
	}
	for _, c := range r.Checks {
		if rate, ok := c.Found["copy_gb_s"].(float64); ok {
			return rate * 1e9
		}
	}
	return 0
}

// isaFor returns the newest set of modules that a device of a compute capability runs.
func isaFor(major, minor int) string {
	best := "sm_75"
	for _, set := range []struct {
		least int
		name  string
	}{{80, "sm_80"}, {89, "sm_89"}} {
		if 10*major+minor >= set.least {
			best = set.name
		}
	}
	return best
}

// A planReport is what of `plan show --json` is of use here.
type planReport struct {
	ISA       string `json:"isa"`
	Fallbacks int    `json:"fallbacks"`
	Launches  any    `json:"launches_per_layer"`
	Programs  map[string]struct {
		Balance struct {
			Cost struct {
				Weights int64 `json:"weights"`
				State   int64 `json:"state"`
			} `json:"cost"`
		} `json:"balance"`
	} `json:"programs"`
}

func (s *subject) plan() string { return filepath.Join(s.dir, "fast.plan") }

// checkPlan compiles the plan whose speed is measured, which must leave no step to the host.
func (s *subject) checkPlan(ctx context.Context, f found) error {
	if _, err := s.run(ctx, "compile", s.model, "--target", "cuda", "--isa", s.isa, "-o", s.plan()); err != nil {
		return err
	}
	var p planReport
	if err := s.decoded(ctx, &p, "plan", "show", s.plan(), "--json"); err != nil {
		return err
	}
	cost := p.Programs["decode"].Balance.Cost
	s.token = cost.Weights + cost.State
	f["isa"], f["fallbacks"], f["launches_per_layer"] = p.ISA, p.Fallbacks, p.Launches
	if p.Fallbacks != 0 {
		return fmt.Errorf("%d steps are left to the host, expected none", p.Fallbacks)
	}
	return nil
}

// A comparison is what of `compare --json` is of use here.
type comparison struct {
	MeanKL float64 `json:"mean_kl"`
	Top1   float64 `json:"top1"`
	Layers []struct {
		D float64 `json:"d"`
	} `json:"layers"`
}

// compare dumps the values on the processor in exact and on the device, and says how far they differ.
func (s *subject) compare(ctx context.Context, f found, precision string, bound ...string) error {
	want, got := filepath.Join(s.dir, "cpu"), filepath.Join(s.dir, precision)
	if _, err := os.Stat(want); errors.Is(err, os.ErrNotExist) {
		if _, err := s.run(ctx, "dump", s.model, "-p", prompt, "--precision", "exact", "-o", want); err != nil {
			return err
		}
	}
	if _, err := s.run(ctx, s.onDevice("dump", s.model, "-p", prompt, "--precision", precision, "-o", got)...); err != nil {
		return err
	}
	var c comparison
	if err := s.decoded(ctx, &c, "compare", want, got, "--json"); err != nil {
		return err
	}
	worst := 0.0
	for _, l := range c.Layers {
		worst = max(worst, l.D)
	}
	f["mean_kl"], f["top1"], f["worst_d"], f["layers"] = c.MeanKL, c.Top1, worst, len(c.Layers)
	_, err := s.run(ctx, append([]string{"compare", want, got}, bound...)...)
	return err
}

func (s *subject) checkExact(ctx context.Context, f found) error {
	return s.compare(ctx, f, "exact", "--max-d", exactD)
}

func (s *subject) checkFast(ctx context.Context, f found) error {
	return s.compare(ctx, f, "fast", "--max-kl", fastKL)
}

// checkTokens continues a text in exact on both, which must choose the same tokens.
func (s *subject) checkTokens(ctx context.Context, f found) error {
	args := []string{"run", s.model, "-p", prompt, "-n", "32", "--temp", "0", "--precision", "exact"}
	want, err := s.run(ctx, args...)
	if err != nil {
		return err
	}
	got, err := s.run(ctx, s.onDevice(args...)...)
	if err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return fmt.Errorf("continues with %q, expected %q", got, want)
	}
	return nil
}

// checkSpeed measures tokens per second, beside what the device's memory would allow if nothing but
// the bytes of a token, weights and cache, took time.
func (s *subject) checkSpeed(ctx context.Context, f found) error {
	var tests []struct {
		Test string  `json:"test"`
		TS   float64 `json:"avg_ts"`
		NGen int     `json:"n_gen"`
	}
	size := []string{"-p", "512", "-n", "128", "-r", "3"}
	if s.quick {
		size = []string{"-p", "8", "-n", "2", "-r", "1"}
	}
	if err := s.decoded(ctx, &tests, append([]string{"bench", s.plan(), "--device", s.device, "--json"}, size...)...); err != nil {
		return err
	}
	limit := 0.0
	if s.token > 0 {
		limit = s.bandwidth / float64(s.token)
	}
	f["token_bytes"], f["limit_t_s"] = s.token, limit
	for _, t := range tests {
		f[t.Test+"_t_s"] = t.TS
		if t.NGen > 0 && limit > 0 {
			f[t.Test+"_of_limit"] = t.TS / limit
		}
	}
	return nil
}
