package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf"
)

func (a *app) plan() *cobra.Command {
	return a.group("plan", "Show, compare or verify plans", a.planShow(), a.planDiff(), a.planVerify())
}

func (a *app) planShow() *cobra.Command {
	var asJSON bool
	cmd := a.verb("show FILE", "Summarize a plan: memory, programs, kernels, and the bytes that each worker reads in each wave",
		`  pesti plan show model.plan --json`,
		arity{1, 1, "FILE"}, a.interruptible(func(cmd *cobra.Command, args []string) error {
			p, err := loadPlan(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				text, err := plan.JSON(p)
				if err != nil {
					return about(args[0], err)
				}
				_, err = a.stdout.Write(text)
				return err
			}
			return printPlan(a.stdout, args[0], p)
		}))
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printPlan prints the summary of the plan called name as text.
func printPlan(w io.Writer, name string, p *plan.Plan) error {
	s, t := plan.Summarize(p), tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	m := s.Memory
	file := fmt.Sprintf("%s, %s", oneLine(p.Model.File), plan.HumanBytes(p.Model.Size))
	if p.Model.File == "" {
		file = "the embedded model demo"
	}
	fmt.Fprintf(t, "model\t%s %q\n\t%s\n", s.Arch, s.Model, file)
	if b := &p.Sidecar; *b != (plan.Sidecar{}) {
		fmt.Fprintf(t, "weights\t%s, %s\n", oneLine(b.File), plan.HumanBytes(b.Size))
	}
	fmt.Fprintf(t, "target\t%s %s, precision %s, KV cache %s\n", s.Backend, s.ISA, s.Precision, s.KV)
	fmt.Fprintf(t, "bounds\tthreads %d, ctx %d, ubatch %d, sequences %d\n", s.Threads, s.Ctx, s.Ubatch, s.Sequences)
	fmt.Fprintf(t, "passes\t%s\n", cmp.Or(s.Passes, "all"))
	tables := ""
	if m.Tables > 0 {
		tables = ", tables " + plan.HumanBytes(m.Tables)
	}
	fmt.Fprintf(t, "memory\tweights %s, packed %s, KV cache %s%s, io %s\n", plan.HumanBytes(m.Weight), plan.HumanBytes(m.Packed), plan.HumanBytes(m.State), tables, plan.HumanBytes(m.IO))
	fmt.Fprintf(t, "arena\t%s (lower bound %s, without reuse %s)\n", plan.HumanBytes(m.Arena), plan.HumanBytes(m.ArenaLowerBound), plan.HumanBytes(m.ArenaUnshared))
	fmt.Fprintf(t, "fusions\tqkv %d, gated_mlp %d, attention %d\n", s.Fusions.QKV, s.Fusions.GatedMLP, s.Fusions.Attention)
	fmt.Fprintf(t, "fallbacks\t%d\n", s.Fallbacks)
	if err := t.Flush(); err != nil {
		return err
	}

	if err := printSpread(w, name, p); err != nil {
		return err
	}
	fmt.Fprintf(t, "\nprogram\ttokens\trows\tsteps\twaves\tper layer\n")
	for i := range p.Programs {
		g := s.Programs[p.Programs[i].Name]
		chunk := ""
		if g.Chunk > 0 {
			chunk = fmt.Sprintf(" by %d", g.Chunk)
		}
		fmt.Fprintf(t, "%s\t%d-%d%s\t%d\t%d\t%d\t%d steps, %d waves\n", p.Programs[i].Name,
			g.Tokens[0], g.Tokens[1], chunk, g.Rows, g.Steps, g.Waves, g.StepsPerLayer, g.WavesPerLayer)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for i := range p.Programs {
		var kernels []string
		counts := s.Programs[p.Programs[i].Name].Kernels
		for _, k := range slices.Sorted(maps.Keys(counts)) {
			kernels = append(kernels, fmt.Sprintf("%d %s", counts[k], k))
		}
		fmt.Fprintf(t, "%s\t%s\n", p.Programs[i].Name, strings.Join(kernels, ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range p.Programs {
		b, err := plan.BalanceOf(p, &p.Programs[i])
		if err != nil {
			return about(name, err)
		}
		if err := printBalance(w, p.Programs[i].Name, b); err != nil {
			return err
		}
	}
	return nil
}

// printSpread prints how devices share a plan, if there are several.
func printSpread(w io.Writer, name string, p *plan.Plan) error {
	if len(p.Devices) == 0 {
		return nil
	}
	s, err := plan.DeviceBreakdownOf(p)
	if err != nil {
		return about(name, err)
	}
	h, t := plan.HumanBytes, tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\ndevice\tweights\tpacked\tKV cache\ttables\tio\tarena\tread a token\tproducts a prompt token\n")
	for i := range s.Devices {
		d := &s.Devices[i]
		m := &d.Memory
		threads := ""
		if d.Threads > 1 {
			threads = fmt.Sprintf(", threads %d", d.Threads)
		}
		fmt.Fprintf(t, "%d, %s %s%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f M\n", i, d.Backend, d.ISA, threads,
			h(m.Weight), h(m.Packed), h(m.State), h(m.Tables), h(m.IO), h(m.Arena), h(d.Read), float64(d.MACs)/1e6)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(t, "\nlink\ta token\ta prompt token\n")
	for _, l := range s.Links {
		fmt.Fprintf(t, "%d → %d\t%s\t%s\n", l.From, l.To, h(l.Token), h(l.Prompt))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\nideal speed-up, if no device waited for another: %.2f of tokens, %.2f of prompts\n", s.Speedup.Token, s.Speedup.Prompt)
	return err
}

// loadPlan reads the PLAN at path and verifies it. A model is a usage error.
func loadPlan(path string) (*plan.Plan, error) {
	if err := refuseModel(path); err != nil {
		return nil, err
	}
	return plan.ReadFile(path)
}

// refuseModel returns a usage error if path is a model.
func refuseModel(path string) error {
	if path == demoName || isModel(path) {
		return usagef("%s: is a GGUF model, expected a plan", path)
	}
	return nil
}

func (a *app) planVerify() *cobra.Command {
	var model, weights string
	var seal bool
	cmd := a.verb("verify FILE", "Verify a plan in full; with --model, that it was compiled for that model",
		`  pesti plan verify model.plan --model model.gguf`,
		arity{1, 1, "FILE"}, a.interruptible(func(cmd *cobra.Command, args []string) error {
			return a.verifyPlan(cmd.Context(), args[0], model, weights, seal)
		}))
	cmd.Flags().StringVar(&model, "model", "", "`MODEL` that the plan must have been compiled for; its weights are compared with the digest in the plan")
	cmd.Flags().StringVar(&weights, "weights", "", "`FILE.safetensors` with the FP8 weights of the plan, if it is not where the plan says")
	cmd.Flags().BoolVar(&seal, "seal", false, "if the plan verifies, write a new digest into it, for a plan that was edited")
	return cmd
}

func (a *app) verifyPlan(ctx context.Context, path, model, weights string, seal bool) error {
	if weights != "" && model == "" {
		return usagef("--weights needs --model, because both are compared with the plan")
	}
	if err := refuseModel(path); err != nil {
		return err
	}
	text, err := plan.ReadText(path)
	if err != nil {
		return err
	}
	if seal {
		text = plan.Seal(text)
	}
	p, err := plan.ParseVerified(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	compared := ""
	if model != "" {
		s, err := a.planSource(p, path, model, weights)
		if err != nil {
			return err
		}
		defer s.Close()
		a.progress("reading the weights of %s", model)
		err = exec.CheckWeights(p, s.File, s.Weights)
		a.progress("")
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		compared = ", for " + model
		if gguf.SampledDigest(p.Model.WeightsDigest) {
			compared += " (samples of its weights; compile --hash stores a digest of all)"
		}
	}
	if seal {
		err := a.replaceFile(ctx, path, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
		if err != nil {
			return err
		}
		compared += ", sealed"
	}
	_, err = fmt.Fprintln(a.stdout, oneLine(path+": ok"+compared))
	return err
}
