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

// A modelCheck checks one model on the device. dir is a folder for the output of pesti.
type modelCheck struct {
	*report
	model, dir string
	bandwidth  float64    // of the device's memory, bytes per second; 0 where unknown
	plan       planReport // the plan whose speed is measured
}

// start runs pesti and returns its standard output.
func (s *modelCheck) start(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.pesti, args...)
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("pesti %s: %w: %s", strings.Join(args, " "), err, says.Bytes())
	}
	return out, nil
}

// decoded runs pesti and decodes the JSON that it prints.
func (s *modelCheck) decoded(ctx context.Context, to any, args ...string) error {
	out, err := s.start(ctx, args...)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, to)
}

// onDevice adds the options that compile for the device and run there.
func (s *modelCheck) onDevice(args ...string) []string {
	return append(args, "--target", "cuda", "--isa", s.isa, "--device", s.device)
}

// prompt is the text that all models continue. Unless the check is to be quick it is repeated, so
// that it has more tokens than a chunk and the program for whole chunks runs too.
const prompt = "The quick brown fox jumps over the lazy dog. Once upon a time there was a small"

func (s *modelCheck) prompt() string {
	if s.quick {
		return prompt
	}
	return strings.Repeat(prompt+". ", 4) + prompt
}

// Bounds on the difference between the device and the CPU in precision exact: d of any layer in
// exact, and the mean KL divergence of the logits in fast, and in fast with an FP8 cache.
const (
	exactD = "1e-4"
	fastKL = "1e-3"
	fp8KL  = "0.06"
)

// checkModel runs the checks of one model.
func checkModel(ctx context.Context, r *report, model string) {
	name := strings.TrimSuffix(filepath.Base(model), ".gguf") + ": "
	s := &modelCheck{report: r, model: model, bandwidth: r.bandwidth()}
	if !r.run(ctx, name+"folder", func(ctx context.Context, f found) (err error) {
		s.dir, err = os.MkdirTemp("", "gpucheck")
		return err
	}) {
		return
	}
	defer os.RemoveAll(s.dir)
	if model == "demo" { // other models take long on the virtual device
		r.run(ctx, name+"bits of the virtual device", s.checkBits)
	}
	for _, c := range []struct {
		name  string
		check func(context.Context, found) error
	}{
		{"plan", s.checkPlan},
		{"exact, layer by layer", s.checkExact},
		{"exact, 32 tokens", s.checkTokens},
		{"fast, logits", s.checkFast},
		{"fast, tokens of replayed graphs", s.checkReplay},
		{"a cache in FP8, logits", s.checkFP8},
		{"speed", s.checkSpeed},
	} {
		r.run(ctx, name+c.name, c.check)
	}
}

// bandwidth returns the bandwidth of the device's memory in bytes per second: the value that the
// device reports, or the measured speed of a copy.
func (r *report) bandwidth() float64 {
	if reported := r.Properties.Bandwidth; reported > 0 {
		return float64(reported)
	}
	for _, c := range r.Checks {
		if rate, ok := c.Found["copy_gb_s"].(float64); ok {
			return rate * 1e9
		}
	}
	return 0
}

// A planReport is the part of `plan show --json` that is used here.
type planReport struct {
	ISA       string `json:"isa"`
	Fallbacks int    `json:"fallbacks"`
	Launches  any    `json:"launches_per_layer"`
	Programs  map[string]struct {
		Balance struct {
			Tokens int64 `json:"tokens"`
			Cost   struct {
				Weights int64 `json:"weights"`
				State   int64 `json:"state"`
			} `json:"cost"`
		} `json:"balance"`
	} `json:"programs"`
}

// limit returns the tokens per second of a program if reading the weights and the cache once were
// the only cost, or 0 if that is unknown.
func (s *modelCheck) limit(program string) float64 {
	b := s.plan.Programs[program].Balance
	if bytes := b.Cost.Weights + b.Cost.State; bytes > 0 {
		return s.bandwidth * float64(b.Tokens) / float64(bytes)
	}
	return 0
}

func (s *modelCheck) planFile() string { return filepath.Join(s.dir, "fast.plan") }

// checkPlan compiles the plan whose speed is measured. No step may run on the host.
func (s *modelCheck) checkPlan(ctx context.Context, f found) error {
	if _, err := s.start(ctx, "compile", s.model, "--target", "cuda", "--isa", s.isa, "-o", s.planFile()); err != nil {
		return err
	}
	if err := s.decoded(ctx, &s.plan, "plan", "show", s.planFile(), "--json"); err != nil {
		return err
	}
	f["isa"], f["fallbacks"], f["launches_per_layer"] = s.plan.ISA, s.plan.Fallbacks, s.plan.Launches
	if s.plan.Fallbacks != 0 {
		return fmt.Errorf("%d steps run on the host, expected none", s.plan.Fallbacks)
	}
	return nil
}

// A comparison is the part of `compare --json` that is used here.
type comparison struct {
	MeanKL float64 `json:"mean_kl"`
	Top1   float64 `json:"top1"`
	Layers []struct {
		D float64 `json:"d"`
	} `json:"layers"`
}

// compare dumps the values on the CPU in exact and on the device with the given options, records
// how far each layer differs, and checks the difference against a bound.
func (s *modelCheck) compare(ctx context.Context, f found, bound, limit string, options ...string) error {
	want, got := filepath.Join(s.dir, "cpu"), filepath.Join(s.dir, strings.Join(options, ""))
	if _, err := os.Stat(want); errors.Is(err, os.ErrNotExist) {
		if _, err := s.start(ctx, "dump", s.model, "-p", s.prompt(), "--precision", "exact", "-o", want); err != nil {
			return err
		}
	}
	if _, err := s.start(ctx, s.onDevice(append([]string{"dump", s.model, "-p", s.prompt(), "-o", got}, options...)...)...); err != nil {
		return err
	}
	return s.differ(ctx, f, want, got, bound, limit)
}

// differ records how far two folders of values differ, and checks the difference against a bound.
func (s *modelCheck) differ(ctx context.Context, f found, want, got, bound, limit string) error {
	var c comparison
	if err := s.decoded(ctx, &c, "compare", want, got, "--json"); err != nil {
		return err
	}
	var layers []float64
	for _, l := range c.Layers {
		layers = append(layers, l.D)
	}
	f["mean_kl"], f["top1"], f["layers_d"] = c.MeanKL, c.Top1, layers
	_, err := s.start(ctx, "compare", want, got, bound, limit)
	return err
}

func (s *modelCheck) checkExact(ctx context.Context, f found) error {
	return s.compare(ctx, f, "--max-d", exactD, "--precision", "exact")
}

func (s *modelCheck) checkFast(ctx context.Context, f found) error {
	return s.compare(ctx, f, "--max-kl", fastKL, "--precision", "fast")
}

func (s *modelCheck) checkFP8(ctx context.Context, f found) error {
	return s.compare(ctx, f, "--max-kl", fp8KL, "--precision", "fast", "--kv", "fp8")
}

// checkBits compares the device with the virtual device, bit by bit. The virtual device computes
// the bits that the PTX manual defines. No kernel uses an instruction whose result the manual
// leaves open.
func (s *modelCheck) checkBits(ctx context.Context, f found) error {
	want, got := filepath.Join(s.dir, "virtual"), filepath.Join(s.dir, "bits")
	args := []string{"dump", s.model, "-p", s.prompt(), "--precision", "fast", "--target", "cuda", "--isa", s.isa}
	for dir, device := range map[string]string{want: "virtual", got: s.device} {
		if _, err := s.start(ctx, append(args, "--device", device, "-o", dir)...); err != nil {
			return err
		}
	}
	return s.differ(ctx, f, want, got, "--max-d", "0")
}

// checkTokens continues a text in exact on the CPU and on the device. Both must choose the same
// tokens.
func (s *modelCheck) checkTokens(ctx context.Context, f found) error {
	args := []string{"run", s.model, "-p", s.prompt(), "-n", "32", "--temp", "0", "--precision", "exact"}
	want, err := s.start(ctx, args...)
	if err != nil {
		return err
	}
	got, err := s.start(ctx, s.onDevice(args...)...)
	if err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return fmt.Errorf("continues with %q, expected %q", got, want)
	}
	return nil
}

// checkReplay continues a text in fast twice: with replayed launches and, for a profile, with
// single launches. Both must choose the same tokens.
func (s *modelCheck) checkReplay(ctx context.Context, f found) error {
	n := "32"
	if s.quick {
		n = "4"
	}
	args := s.onDevice("run", s.model, "-p", s.prompt(), "-n", n, "--temp", "0", "--precision", "fast")
	want, err := s.start(ctx, append(args, "--profile", filepath.Join(s.dir, "profile.json"))...)
	if err != nil {
		return err
	}
	got, err := s.start(ctx, args...)
	if err != nil {
		return err
	}
	if len(want) == 0 || !bytes.Equal(want, got) {
		return fmt.Errorf("continues with %q with replayed launches, expected %q", got, want)
	}
	return nil
}

// checkSpeed measures tokens per second, and compares them with the limit of the device's memory.
func (s *modelCheck) checkSpeed(ctx context.Context, f found) error {
	var tests []struct {
		Test string  `json:"test"`
		TS   float64 `json:"avg_ts"`
		NGen int     `json:"n_gen"`
	}
	size := []string{"-p", "512", "-n", "128", "-r", "3"}
	if s.quick {
		size = []string{"-p", "8", "-n", "2", "-r", "1"}
	}
	if err := s.decoded(ctx, &tests, append([]string{"bench", s.planFile(), "--device", s.device, "--json"}, size...)...); err != nil {
		return err
	}
	f["token_bytes"] = s.plan.Programs["decode"].Balance.Cost.Weights + s.plan.Programs["decode"].Balance.Cost.State
	f["decode_limit_t_s"], f["prefill_limit_t_s"] = s.limit("decode"), s.limit("prefill")
	for _, t := range tests {
		f[t.Test+"_t_s"] = t.TS
		if limit := s.limit("decode"); t.NGen > 0 && limit > 0 {
			f[t.Test+"_of_limit"] = t.TS / limit
		}
	}
	return nil
}
