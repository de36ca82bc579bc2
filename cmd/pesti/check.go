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
			s, err := a.open(args[0], o.model, flags)
			if err != nil {
				return err
			}
			defer s.Close()
			return a.checkSource(cmd.Context(), s, o)
		})
	cmd.Long = cmd.Short + `.

gorgonia.org/gorgonia, which shares no arithmetic with the kernels of plans, computes the model's graph in
float64, before any pass. The check compares three things of each program of the plan with it: the residual
stream after each block, by the largest d = |b - a| / (|a| + median |a|), where a is gorgonia's value and
the median is over one position; the logits of all positions; and the mean Kullback-Leibler divergence of
the distributions. The exit code is 1 if one exceeds its bound:

` + boundsText() + `
It is also 1 if the most likely token of a position differs, unless the logits of gorgonia's two most likely
tokens are closer than the bound. If the largest logit of a position exceeds 100, the bound of its logits
grows in proportion. If a layer exceeds 1e-4 in exact, gorgonia computes it again in float32; if the d of
that result exceeds 3e-5, three times that d is the layer's bound.

With --activations mixed or q8, rounding to 8 bits adds up over the layers, so the bounds above are wide.
The check then also compares each value that a step stores with what gorgonia computes from the values that
the plan stored before it. Rounding to the value's format does not count: the d of one step is at most 1e-4,
or three times that of float32, as in exact. The error names the first value that exceeds it. gorgonia
computes such plans in float32, and in float64 the values that exceed 1e-4.

The prompt is one sequence that begins at position 0. A program for more tokens than the prompt has is not
run, and the output names it. gorgonia is slow, and its memory grows with the square of the number of
tokens; a few hundred tokens are practical. A prompt that does not fit in memory is refused, and so is a
model with a dimension of 1 (such as head_dim 1), because gorgonia treats such a matrix as a vector.`
	o.prompt = addPromptFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.StringVar(&o.model, "model", "", "`MODEL` that a PLAN was compiled from, if it is not where the plan says")
	flags = addCompileFlags(cmd, "exact")
	flags.addDevice(cmd)
	return cmd
}

func boundsText() string {
	return fmt.Sprintf("  precision exact, float32 cache   %s\n  --activations mixed or q8        %s\n  else                             %s\n",
		compare.Bounds.Exact, compare.Bounds.OnePlane, compare.Bounds.Fast)
}

func (a *app) checkSource(ctx context.Context, s *source, o *checkOptions) error {
	ids, err := o.prompt.tokens(ctx, s)
	if err != nil {
		return err
	}
	s.Options.Compile.Rows = compare.StepTokens // with fewer rows, passes would be repeated for the remaining rows
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
	var notes strings.Builder
	for _, l := range r.Layers {
		if l.Allowed > r.Bound.D {
			fmt.Fprintf(&notes, "layer %02d: gorgonia in float32 has d %.1e, so that %.1e is allowed\n", l.Layer, l.Floor, l.Allowed)
		}
	}
	if step := r.WorstStep(); step != nil {
		fmt.Fprintf(&notes, "%d values, each compared with what gorgonia computes from those before it: worst d %.1e of %s at position %d, dim %d, program %s, where %.1e is allowed\n",
			len(r.Steps), step.D, oneLine(step.Value), step.Position, step.Dim, oneLine(step.Program), step.Allowed)
	}
	argmax := fmt.Sprintf("the same most likely token at %d of %d positions", r.Tokens-r.Logits.Wrong-r.Logits.Close, r.Tokens)
	if r.Logits.Close > 0 {
		argmax += fmt.Sprintf(", at %d too close to decide", r.Logits.Close)
	}
	verdict := "ok"
	if !r.OK {
		verdict = "differs"
	}
	_, err := fmt.Fprintf(w, "%slogits |Δ| %.1e at position %d, token %d; mean KL divergence %.1e; %s\n%s%s: %d tokens in %s, precision %s, cache %s; bounds: %s\n",
		&notes, r.Logits.Delta, r.Logits.Position, r.Logits.Token, r.Logits.KL, argmax,
		skippedLines(r.Skipped), verdict, r.Tokens, oneLine(strings.Join(r.Programs, ", ")), r.Precision, r.KV, r.Bound)
	return err
}
