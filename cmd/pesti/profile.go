package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pesti/exec"
	"pesti/exec/backends"
	"pesti/exec/load"
	"pesti/exec/plan"
	"pesti/exec/profile"
)

// profileFlags are the flags of verbs that profile a run.
type profileFlags struct {
	profile optionalFile
	gpu     choice
	steps   bool
	trace   string
	runs    count

	set *pflag.FlagSet // the verb's

	watch *load.Watch // measures the load of the machine since prepare
	most  load.Load   // the largest load of a part of the run
}

func addProfileFlags(cmd *cobra.Command) *profileFlags {
	f := cmd.Flags()
	p := &profileFlags{runs: count{32, 1}, gpu: choice{"h200", profile.GPUs()}, set: f}
	f.Var(&p.profile, profileFlag, "print time, bytes and operations of each kernel next to the prediction, and write them as JSON to `[FILE]` if it is given; the virtual device measures no time, and prints counts instead")
	f.Var(&p.gpu, "gpu", "GPU whose times a profile of the virtual device predicts")
	f.BoolVar(&p.steps, "profile-steps", false, "print a profile of each step too")
	f.StringVar(&p.trace, "trace", "", "write the time span of each step on each worker to `FILE`, for chrome://tracing or ui.perfetto.dev")
	f.Var(&p.runs, "trace-runs", "number of forward passes in the trace; earlier ones are dropped")
	return p
}

// profileFlag is the name of the flag whose value may be left out.
const profileFlag = "profile"

// An optionalFile is the value of a flag with an optional file name.
type optionalFile struct {
	asked bool
	path  string
}

func (o *optionalFile) String() string     { return o.path }
func (o *optionalFile) Type() string       { return "FILE" }
func (o *optionalFile) Set(s string) error { o.asked, o.path = true, s; return nil }

// withoutFile allows --profile without a value at the end or before another flag. Its result is not nil.
func withoutFile(args []string) []string {
	args = append([]string{}, args...)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if last := i == len(args)-1; arg == "--"+profileFlag && (last || strings.HasPrefix(args[i+1], "-")) {
			args[i] += "="
		}
	}
	return args
}

// counts reports whether the source runs on a device that counts, instead of measuring times.
func (p *profileFlags) counts(s *source) bool {
	return p.profile.asked && s.on.word == backends.Virtual
}

// prepare checks the options and makes the source's engine measure times. It checks before a long
// run that files are writable.
func (p *profileFlags) prepare(s *source) error {
	if p.steps && !p.profile.asked {
		return usagef("--profile-steps needs a profile, expected --profile too")
	}
	if p.set.Changed("gpu") && !p.counts(s) {
		return usagef("--gpu names the GPU whose times a profile of the virtual device predicts, expected --profile and --device virtual")
	}
	if s.on.word == backends.Virtual && p.trace != "" {
		return usagef("--trace writes times, and the virtual device has none; expected --profile")
	}
	if p.runs.n > profile.MaxTrace {
		return usagef("--trace-runs is %d, expected at most %d", p.runs.n, profile.MaxTrace)
	}
	if p.set.Changed("trace-runs") && p.trace == "" {
		return usagef("--trace-runs needs a trace, expected --trace FILE too")
	}
	for _, path := range []string{p.profile.path, p.trace} {
		switch path {
		case "":
		case standardStream:
			return usagef("--%s and --trace write to a file, found -", profileFlag)
		default:
			if err := s.app.spareInputs(path); err != nil {
				return err
			}
			if err := s.app.checkWritable(path); err != nil {
				return err
			}
			s.app.promised = append(s.app.promised, path)
		}
	}
	if p.trace != "" && p.trace == p.profile.path {
		return usagef("--trace and --%s both name %s, expected two files", profileFlag, p.trace)
	}
	s.Options.Engine.Profile = p.profile.asked
	p.watch = load.Start()
	if p.trace != "" {
		s.Options.Engine.Trace = int(p.runs.n)
	}
	return nil
}

// checkWritable returns an error if a file cannot be created at path.
func (a *app) checkWritable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil // a device or a pipe, which is written to directly
	} else if err == nil && info.IsDir() {
		return fmt.Errorf("%s: is a folder, expected a file to write", path)
	}
	f, err := a.createPart(path)
	if err != nil {
		return cannot("written", path, err)
	}
	err = errors.Join(spareModel(path, f.Name()), f.Close())
	a.discard(&staged{part: f.Name()})
	return err
}

// write writes the requested files about the engine's runs, and prints the profile.
func (p *profileFlags) write(ctx context.Context, a *app, e *exec.Engine, to io.Writer) error {
	if err := p.writeTrace(ctx, a, e); err != nil {
		return err
	}
	if !p.profile.asked {
		return nil
	}
	if len(e.Profile().Programs) == 0 {
		return errors.New("there is nothing to profile: no forward pass ran; expected at least one token")
	}
	var report any
	var show func() error
	var err error
	if e.Profile().Counted {
		r, e := p.countReport(e)
		report, err, show = r, e, func() error { return printCounts(to, r, p.steps) }
	} else {
		a.progress("measuring the limits of the machine")
		r, e := e.ProfileReport(ctx)
		a.progress("")
		if e == nil {
			p.most.Raise(p.watch.StopOwn().Others)
			r.SetLoad(p.most)
		}
		report, err, show = r, e, func() error { return printProfile(to, r, p.steps) }
	}
	if err == nil && p.profile.path != "" {
		err = a.writeFile(ctx, p.profile.path, func(w io.Writer) error {
			enc := json.NewEncoder(w)
			enc.SetIndent("", " ")
			return enc.Encode(report)
		})
		if err == nil {
			a.kept(p.profile.path)
		}
	}
	if err != nil || to == nil {
		return err
	}
	return show()
}

// writeTrace writes the trace if it was requested.
func (p *profileFlags) writeTrace(ctx context.Context, a *app, e *exec.Engine) error {
	if p.trace == "" {
		return nil
	}
	err := a.writeFile(ctx, p.trace, func(w io.Writer) error { return profile.WriteTrace(w, e.Trace()) })
	if err == nil {
		a.kept(p.trace)
	}
	return err
}

// writeStopped writes the trace of a run that was stopped, if anything ran. It writes no profile,
// since that needs the roofline, which takes long to measure.
func (p *profileFlags) writeStopped(ctx context.Context, a *app, e *exec.Engine) error {
	if p.trace == "" || len(e.Trace()) == 0 {
		return nil
	}
	if err := p.writeTrace(context.WithoutCancel(ctx), a, e); err != nil {
		return err
	}
	a.say("pesti: %s has the trace up to that point", p.trace)
	return nil
}

// printProfile prints a report as text. On a busy machine it has no fractions of the limit.
func printProfile(w io.Writer, r *profile.Report, steps bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	switch {
	case r.Roofline.Near > 0:
		fmt.Fprintf(w, "roofline of %d workers: %s\n", r.Workers, rooflineText(r.Roofline))
	case r.Roofline.Read > 0:
		fmt.Fprintf(w, "roofline of the device: memory bandwidth %.0f GB/s\n", r.Roofline.Read/1e9)
	default:
		fmt.Fprintf(w, "no roofline: the device does not report its memory bandwidth\n")
	}
	for i := range r.Programs {
		g := &r.Programs[i]
		fmt.Fprintf(w, "\n%s: %s in %.1f ms, predicted %.1f ms\n", g.Program, runsText(g.Runs, g.Tokens), 1e3*g.Seconds, 1e3*g.Predicted)
		fmt.Fprintf(t, "calls\tms\tshare\tGB/s\tGMAC/s\tof limit\tpredicted ms\timbalance\t  kernel\n")
		for j := range g.Kernels {
			printMeasured(t, &g.Kernels[j], g.Kernels[j].Name, r.Busy)
		}
		for _, rest := range []struct {
			name    string
			seconds float64
		}{{"waiting at barriers", g.Waits}, {"between waves", g.Rest}} {
			fmt.Fprintf(t, "\t%.2f\t%.1f %%\t\t\t\t\t\t  %s\n", 1e3*rest.seconds, 100*rest.seconds/cmp.Or(g.Seconds, 1), rest.name)
		}
		if steps {
			if err := t.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(t, "\ncalls\tms\tshare\tGB/s\tGMAC/s\tof limit\tpredicted ms\timbalance\t  step\n")
			for j := range g.Steps {
				m := &g.Steps[j]
				printMeasured(t, m, fmt.Sprintf("wave %d  step %d  %s  %s", m.Wave, m.Step, oneLine(m.Name), m.Kernel), r.Busy)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if !r.Busy {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nbusy: other programs used %.2f processors (at most %.2f is quiet), so the times and the roofline say little; measure again when the machine is idle\n", *r.Others, load.Quiet)
	return err
}

// runsText returns the number of runs of a program and of the tokens that they evaluated together.
func runsText(runs, tokens int64) string {
	if runs == 1 {
		return fmt.Sprintf("1 run of %d tokens", tokens)
	}
	return fmt.Sprintf("%d runs, together %d tokens,", runs, tokens)
}

func printMeasured(w io.Writer, m *profile.Measured, name string, busy bool) {
	of := fmt.Sprintf("%.0f %%", 100*m.OfLimit)
	if busy {
		of = "busy"
	}
	fmt.Fprintf(w, "%d\t%.2f\t%.1f %%\t%.2f\t%.2f\t%s\t%.2f\t%.1f %%\t  %s\n",
		m.Calls, 1e3*m.Seconds, 100*m.Share, m.BytesS/1e9, m.MACsS/1e9, of, 1e3*m.Predicted, 100*m.Imbalance, name)
}

// rooflineText returns a machine's peak rates as text.
func rooflineText(r *profile.Roofline) string {
	parts := []string{fmt.Sprintf("reads %.1f GB/s of %s, %.1f GB/s near a core", r.Read/1e9, plan.HumanBytes(int64(r.ReadBytes)), r.Near/1e9)}
	for _, name := range []string{"f32", "int16", "int8"} {
		if v := r.MACs[name]; v > 0 {
			parts = append(parts, fmt.Sprintf("%s %.1f GMAC/s", name, v/1e9))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("an empty wave %.2f µs", 1e6*r.Wave)), ", ")
}

// readProfile reads the profile at path, which must be of plan p, and returns the time of each step
// by program.
func (a *app) readProfile(path string, p *plan.Plan) (map[string][]float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, cannot("opened", path, err)
	}
	a.inputs = append(a.inputs, path)
	times, err := profile.StepTimes(text, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return times, nil
}
