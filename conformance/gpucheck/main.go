// Command gpucheck checks everything that pesti expects of a CUDA device, in one run of a few
// minutes: the driver's contract, kernels against their references, whole models against the CPU
// layer by layer, that no step runs on the host, and the speed relative to the limit of the memory.
//
//	gpucheck -device cuda:0 -pesti bin/pesti [-kernels bin/kernels.test] [-o FILE] MODEL…
//
// It needs only programs that are already built: itself, pesti, pesti-cuda and the tests of the
// kernels. It prints one line per check. After each check it rewrites the report, in JSON, so that
// the results survive a crash. A check that fails or takes too long does not end the run; the exit
// code is then 1. With the build tag libcuda it supports cuda:N, and in every build the device
// virtual.
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
	"pesti/exec/cuda/kernels"
)

// options are the flags.
type options struct {
	device, pesti, kernels, out string
	limit, each                 time.Duration
	quick                       bool
	models                      []string
}

func main() {
	var o options
	flag.StringVar(&o.device, "device", "virtual", "`virtual or cuda:N`")
	flag.StringVar(&o.pesti, "pesti", "bin/pesti", "`FILE` of pesti; pesti-cuda must be in the same folder")
	flag.StringVar(&o.kernels, "kernels", "", "`FILE` of the compiled kernel tests; without it they are not run")
	flag.StringVar(&o.out, "o", "", "`FILE` for the report (default standard output)")
	flag.DurationVar(&o.limit, "limit", 8*time.Minute, "time limit of the whole run; checks that have not run by then fail")
	flag.DurationVar(&o.each, "each", 3*time.Minute, "time limit of one check, which fails after it")
	flag.BoolVar(&o.quick, "quick", false, "shorten all checks, so that they are fast without a GPU; measured speeds are then meaningless")
	flag.Parse()
	o.models = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	r := &report{Device: o.device, Begun: time.Now().UTC().Format(time.RFC3339), options: &o}
	r.all(ctx)
	if err := r.write(); err != nil {
		fmt.Fprintln(os.Stderr, "gpucheck:", err)
		os.Exit(1)
	}
	if !r.OK {
		os.Exit(1)
	}
}

// A report has all results, in the form that is written.
type report struct {
	*options   `json:"-"`
	isa        string           // instruction set of the best modules for the device and its driver
	Device     string           `json:"device"`
	Begun      string           `json:"begun"`
	Driver     int              `json:"driver_cuda"` // the CUDA version of the driver; 12090 is 12.9
	Properties *cuda.Properties `json:"properties"`
	Checks     []check          `json:"checks"`
	OK         bool             `json:"ok"`
}

// A check is the result of one check, with its measurements.
type check struct {
	Name    string         `json:"name"`
	OK      bool           `json:"ok"`
	Error   string         `json:"error,omitempty"`
	Seconds float64        `json:"seconds"`
	Found   map[string]any `json:"found,omitempty"`
}

// found has the measurements of a check.
type found map[string]any

// run runs one check, prints its line, and records it. Nothing runs after ctx has ended. A check
// that hangs, such as a call of the driver, is abandoned.
func (r *report) run(ctx context.Context, name string, f func(context.Context, found) error) bool {
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, r.each, fmt.Errorf("took longer than %v", r.each))
	defer cancel()
	c := check{Name: name}
	err := context.Cause(ctx)
	if err == nil {
		found, done := found{}, make(chan error, 1)
		go func() { done <- f(ctx, found) }()
		select {
		case err = <-done:
			if c.Found = found; !encodes(found) {
				c.Found = map[string]any{"text": fmt.Sprint(found)}
			}
			if cause := context.Cause(ctx); err != nil && cause != nil {
				err = fmt.Errorf("%w: %w", cause, err)
			}
		case <-afterwards(ctx):
			err = fmt.Errorf("%w and did not stop", context.Cause(ctx))
		}
	}
	c.Seconds = time.Since(begin).Seconds()
	c.OK = err == nil
	verdict := "ok"
	if err != nil {
		c.Error = strings.Join(strings.Fields(err.Error()), " ")
		verdict = "FAILED: " + c.Error
	} else if text, err := json.Marshal(c.Found); err == nil && len(c.Found) > 0 {
		verdict += " " + string(text)
	}
	r.Checks = append(r.Checks, c)
	fmt.Fprintf(os.Stderr, "%-40s %6.1fs  %s\n", name, c.Seconds, verdict)
	if r.out != "" {
		r.write() // the last call reports the error
	}
	return c.OK
}

// encodes reports whether the measurements can be written as JSON, which has no NaN.
func encodes(f found) bool {
	_, err := json.Marshal(f)
	return err == nil
}

// afterwards returns a channel that is closed some time after ctx has ended, so that a check which
// observes ctx can end by itself.
func afterwards(ctx context.Context) <-chan struct{} {
	end := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(2*time.Second, func() { close(end) }) })
	return end
}

// all runs all checks. A kernel that traps makes the device unusable for the process, so that check
// is the last.
func (r *report) all(ctx context.Context) {
	r.run(ctx, "pesti", r.checkPesti)
	var d cuda.Device
	if r.run(ctx, "device", func(context.Context, found) (err error) {
		d, err = r.open(r.device)
		return err
	}) {
		for _, c := range contract {
			r.run(ctx, "driver: "+c.name, func(_ context.Context, f found) error { return c.check(d, f) })
		}
		r.run(ctx, "driver: speed", func(_ context.Context, f found) error { return checkSpeed(d, r.quick, f) })
		if r.kernels != "" {
			r.run(ctx, "kernels", func(ctx context.Context, f found) error { return checkKernels(ctx, r.options, f) })
		}
		for _, m := range r.models {
			checkModel(ctx, r, m)
		}
		r.run(ctx, "driver: a kernel that traps", func(context.Context, found) error { return checkTrap(d) })
	}
	r.OK = true
	for _, c := range r.Checks {
		r.OK = r.OK && c.OK
	}
}

// checkPesti records which program is checked, and which devices of the machine it reports.
func (r *report) checkPesti(ctx context.Context, f found) error {
	s := &modelCheck{report: r}
	version, err := s.start(ctx, "version")
	if err != nil {
		return err
	}
	info, err := s.start(ctx, "info")
	if err != nil {
		return err
	}
	var devices []string
	for line := range strings.Lines(string(info)) {
		if row, ok := strings.CutPrefix(line, "cuda "); ok {
			devices = append(devices, strings.TrimSpace(row))
		}
	}
	f["version"], f["devices"] = strings.TrimSpace(string(version)), devices
	return nil
}

// open opens the device called name, and records its properties.
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
	set, err := kernels.For(r.Driver, p.Major, p.Minor)
	r.isa = set.ISA
	return d, err
}

func (r *report) write() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if r.out == "" {
		_, err = os.Stdout.Write(text)
		return err
	}
	return os.WriteFile(r.out, text, 0o666)
}
