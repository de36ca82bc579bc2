package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"pesti/conformance/compare"
)

// checkOptions are the flags of check, without those of compile.
type checkOptions struct {
	prompt *promptFlags
	model  string
	asJSON bool
}

func (a *app) check() *cobra.Command {
	o := &checkOptions{}
	var flags *compileFlags
	cmd := a.verb("check MODEL|PLAN -p TEXT", "Check each layer of a plan against gorgonia, an independent executor",
		`  pesti check demo -p "Once upon a time"
  pesti check model.gguf --precision fast --passes none --ids 1,2,3
  pesti check model.plan -f prompt.txt`,
		arity{1, 1, "MODEL or PLAN"}, func(cmd *cobra.Command, args []string) error {
			s, err := a.open(cmd.Context(), args[0], o.model, flags)
			if err != nil {
				return err
			}
			defer s.release()
			return a.checkSource(cmd.Context(), s, o)
		})
	cmd.Long = cmd.Short + `.

The tape machine of gorgonia.org/gorgonia, which shares no arithmetic with the kernels of plans, computes
the model's graph in float64, before any pass. The check compares what each program of the plan computes:
the residual stream after each block by the worst d = max |b - a| / (|a| + median |a|), where a is
gorgonia's and the median is over the dims of a position; the logits of all positions; and the mean
Kullback-Leibler divergence of the distributions. The exit code is 1 where a bound does not hold:

` + boundsText() + `
and where the most likely token is another one, unless gorgonia's best two are that close. Where the
largest logit of a position is above 100, its logits may differ by as many times more. Where a layer
exceeds 1e-4 in exact, gorgonia computes it again in float32: if that too is far from float64, by more
than 3e-5, three times its d is allowed in that layer.

The bounds for one plane of activations detect gross faults alone, since that format itself loses as
much: compile with --activations q8x2 or --precision exact to detect the rest.

The prompt is one sequence from position 0 on. A program that takes more tokens at a time than the prompt
has does not run, and the output says so. gorgonia is slow, and its memory grows with the square of the
number of tokens: some hundred are sensible, and what does not fit is refused. So is a model in which
some extent is 1, such as heads of one dim: gorgonia takes such a matrix for a vector.`
	o.prompt = addPromptFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.StringVar(&o.model, "model", "", "`MODEL` of a PLAN, where it is not where the plan says")
	flags = addCompileFlags(cmd, "exact")
	flags.addDevice(cmd)
	return cmd
}

func boundsText() string {
	return fmt.Sprintf("  precision exact, float32 cache   %s\n  --activations mixed or q8        %s\n  else                             %s\n",
		compare.Bounds.Exact, compare.Bounds.OnePlane, compare.Bounds.Fast)
}

func (a *app) checkSource(ctx context.Context, s *source, o *checkOptions) error {
	ids, err := o.prompt.tokens(s)
	if err != nil {
		return err
	}
	s.options.Rows = compare.StepTokens // otherwise steps run again for the next rows
	if _, err = s.compile(); err != nil {
		return err
	}
	if err := s.checkLength(len(ids)); err != nil {
		return err
	}
	c, err := compare.NewChecker(s.input(), compare.Description{Name: s.name}, ids)
	if err != nil {
		return err
	}
	a.loaded()
	r, err := c.Check(ctx, a.progressOf)
	a.progress("")
	if err != nil {
		return err
	}
	return cmp.Or(a.show(checkReport{r}, o.asJSON), r.Check())
}

// A checkReport prints what check finds.
type checkReport struct{ *compare.CheckReport }

func (r checkReport) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "layer\td\tposition\tdim\tprogram\n")
	for _, l := range r.Layers {
		fmt.Fprintf(t, "%02d\t%.1e\t%d\t%d\t%s\n", l.Layer, l.D, l.Position, l.Dim, oneLine(l.Program))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var floors strings.Builder
	for _, l := range r.Layers {
		if l.Allowed > r.Bound.D {
			fmt.Fprintf(&floors, "layer %02d: gorgonia in float32 has d %.1e, so that %.1e is allowed\n", l.Layer, l.Floor, l.Allowed)
		}
	}
	argmax := fmt.Sprintf("the same most likely token at %d of %d positions", r.Tokens-r.Logits.Wrong-r.Logits.Close, r.Tokens)
	if r.Logits.Close > 0 {
		argmax += fmt.Sprintf(", at %d too close to tell", r.Logits.Close)
	}
	verdict := "ok"
	if !r.OK {
		verdict = "differs"
	}
	_, err := fmt.Fprintf(w, "%slogits |Δ| %.1e at position %d, token %d; mean KL divergence %.1e; %s\n%s%s: %d tokens in %s, precision %s, cache %s; bounds: %s\n",
		&floors, r.Logits.Delta, r.Logits.Position, r.Logits.Token, r.Logits.KL, argmax,
		skippedLines(r.Skipped), verdict, r.Tokens, oneLine(strings.Join(r.Programs, ", ")), r.Precision, r.KV, r.Bound)
	return err
}
