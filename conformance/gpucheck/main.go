// Command gpucheck holds a CUDA device to all that pesti expects of it, in one go and in minutes:
// the driver's contract, kernels against their reference, whole models against the processor layer
// by layer, no step left to the host, and speed beside what the memory allows.
//
//	gpucheck -device cuda:0 -pesti bin/pesti [-kernels bin/kernels.test] [-o FILE] MODEL…
//
// It needs nothing but what is built already: itself, pesti, pesti-cuda and the tests of the kernels.
// It prints a line for each check and writes a report in JSON; a check that fails does not end it, and
// makes the exit code 1. Built with the tag libcuda it knows cuda:N, and in every build virtual.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"pesti/exec/cuda"
)

// options are the flags.
type options struct {
	device, pesti, kernels, out string
	limit                       time.Duration
	quick                       bool
	models                      []string
}

func main() {
	var o options
	flag.StringVar(&o.device, "device", "virtual", "`virtual or cuda:N`")
	flag.StringVar(&o.pesti, "pesti", "bin/pesti", "`FILE` of pesti, with pesti-cuda beside it")
	flag.StringVar(&o.kernels, "kernels", "", "`FILE` of the compiled tests of the kernels; none is no such check")
	flag.StringVar(&o.out, "o", "", "`FILE` to write the report to; none is standard output")
	flag.DurationVar(&o.limit, "limit", 8*time.Minute, "the longest that all may take; what is left then counts as failed")
	flag.BoolVar(&o.quick, "quick", false, "measure so little that it means nothing, as where there is no GPU")
	flag.Parse()
	o.models = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	r := &report{Device: o.device, Begun: time.Now().UTC().Format(time.RFC3339)}
	r.all(ctx, &o)
	if err := r.write(o.out); err != nil {
		fmt.Fprintln(os.Stderr, "gpucheck:", err)
		os.Exit(1)
	}
	if !r.OK {
		os.Exit(1)
	}
}

// A report is what was found, as it is written.
type report struct {
	Device     string           `json:"device"`
	Begun      string           `json:"begun"`
	Driver     int              `json:"driver_cuda"` // the version that it is for, 12090 is 12.9
	Properties *cuda.Properties `json:"properties"`
	Checks     []check          `json:"checks"`
	OK         bool             `json:"ok"`
}

// A check is one thing that was held to something, and what was measured by the way.
type check struct {
	Name    string         `json:"name"`
	OK      bool           `json:"ok"`
	Error   string         `json:"error,omitempty"`
	Seconds float64        `json:"seconds"`
	Found   map[string]any `json:"found,omitempty"`
}

// found is what a check measures.
type found map[string]any

// run makes one check, prints its line, and keeps it. Nothing runs once ctx has ended.
func (r *report) run(ctx context.Context, name string, f func(found) error) bool {
	begin := time.Now()
	c := check{Name: name, Found: found{}}
	err := ctx.Err()
	if err == nil {
		err = f(c.Found)
	}
	c.Seconds = time.Since(begin).Seconds()
	c.OK = err == nil
	verdict := "ok"
	if err != nil {
		c.Error = strings.Join(strings.Fields(err.Error()), " ")
		verdict = "FAILED: " + c.Error
	}
	r.Checks = append(r.Checks, c)
	fmt.Fprintf(os.Stderr, "%-40s %6.1fs  %s\n", name, c.Seconds, verdict)
	return c.OK
}

// all makes all checks. A kernel that traps takes the device from the process, so that comes last.
func (r *report) all(ctx context.Context, o *options) {
	var d cuda.Device
	if r.run(ctx, "device", func(f found) (err error) {
		d, err = r.open(o.device)
		return err
	}) {
		for _, c := range contract {
			r.run(ctx, "driver: "+c.name, func(f found) error { return c.check(d, f) })
		}
		r.run(ctx, "driver: speed", func(f found) error { return checkSpeed(d, o.quick, f) })
		for _, m := range o.models {
			checkModel(ctx, r, o, m)
		}
		if o.kernels != "" {
			r.run(ctx, "kernels", func(f found) error { return checkKernels(ctx, o, f) })
		}
		r.run(ctx, "driver: a kernel that traps", func(f found) error { return checkTrap(d) })
	}
	r.OK = true
	for _, c := range r.Checks {
		r.OK = r.OK && c.OK
	}
}

// open opens the device called name, and notes what is known of it.
func (r *report) open(name string) (cuda.Device, error) {
	word, number, _ := strings.Cut(name, ":")
	driver, err := openDriver(word)
	if err != nil {
		return nil, err
	}
	r.Driver = driver.Version()
	n := 0
	if number != "" {
		if _, err := fmt.Sscanf(number, "%d", &n); err != nil {
			return nil, fmt.Errorf("-device %s: expected virtual or cuda:N", name)
		}
	}
	d, err := driver.Open(n)
	if err != nil {
		return nil, err
	}
	p := d.Properties()
	r.Properties = &p
	return d, nil
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if path == "" {
		_, err = os.Stdout.Write(text)
		return err
	}
	return os.WriteFile(path, text, 0o666)
}
