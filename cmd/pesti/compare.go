package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pesti/conformance/compare"
)

// compareOptions are the flags of compare, without those of compile.
type compareOptions struct {
	prompt         *promptFlags
	but            []string
	model          string
	bisect, asJSON bool
	maxKL, maxD    bound
	flags          *compileFlags
	given          *pflag.FlagSet // to ask which flags were given
}

func (a *app) compare() *cobra.Command {
	o := &compareOptions{}
	cmd := a.verb("compare A B [-p TEXT]", "Measure how far two models, plans or folders of values differ",
		`  pesti compare demo demo --but precision=fast -p "Once upon a time"
  pesti compare demo demo --passes none --but passes=-fuse_qkv --ids 1,2,3
  pesti compare model.gguf FOLDER --max-d 1e-4
  pesti compare a.plan b.plan --bisect -p "Once upon a time"`,
		arity{2, 2, "A and B, each a MODEL, a PLAN or a FOLDER"}, func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.compareOperands(cmd.Context(), args[0], args[1], o)
		})
	cmd.Long = cmd.Short + `.

A and B are each a MODEL, a PLAN, or a FOLDER that dump wrote (tokens.npy, logits.npy, layer_00.npy and so
on). A is the reference. The options of compile apply to both; --but changes some of them for B. Without a
prompt, the tokens are the ones in the FOLDER.

Every program of both plans evaluates all tokens, in steps of a size that the program takes. A program that
needs more tokens than there are is not run, and the output names it. For each program the output has the
mean and the largest Kullback-Leibler divergence of B's logits from A's, in nats per token, and the number
of positions with the same most likely token. For the residual stream after each block it has the largest
d = |b - a| / (|a| + median |a|), where the median is over one position.

--bisect runs both plans in steps of the same size, and names the first step of B whose value differs from
A's by a d above --max-d. Without --max-d the limit is 0 if both have the same target, precision, KV
cache and passes, and 1e-4 otherwise. With --max-d, a program that was not run is an error too.`
	o.prompt = addPromptFlags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&o.but, "but", nil, "`OPTION=VALUE` of compile for B alone, such as precision=fast; may be given more than once")
	f.Var(&o.maxKL, "max-kl", "fail if the mean divergence exceeds `X`")
	f.Var(&o.maxD, "max-d", "fail if the d of a layer, or with --bisect of any value, exceeds `X`")
	f.BoolVar(&o.bisect, "bisect", false, "name the first step whose value differs")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.StringVar(&o.model, "model", "", "`MODEL` that a PLAN was compiled from, if it is not where the plan says")
	o.flags = addCompileFlags(cmd, "exact")
	o.flags.addDevice(cmd)
	o.given = f
	return cmd
}

func (o *compareOptions) check() error {
	if o.prompt.count() > 1 {
		return usagef("expected %s", promptWords)
	}
	if o.bisect && o.given.Changed("max-kl") {
		return usagef("--max-kl is a limit for logits, but --bisect compares values; expected --max-d")
	}
	return nil
}

// forB returns the options of B: the options of A with the changes from --but.
func (o *compareOptions) forB() (*compileFlags, error) {
	b := newCompileFlags("exact")
	b.withDevice()
	set := b.set
	*b = *o.flags
	b.set = set
	for _, option := range o.but {
		name, value, ok := strings.Cut(option, "=")
		if !ok || set.Lookup(name) == nil {
			return nil, usagef("--but %s: expected OPTION=VALUE, with an option of compile such as precision", option)
		}
		if err := set.Set(name, value); err != nil {
			return nil, usagef("--but: %w", err)
		}
	}
	return b, nil
}

// An openedOperand is an operand with its open files.
type openedOperand struct {
	compare.Operand
	source *source // nil for a folder
}

func (o *openedOperand) close() {
	o.Close()
	if o.source != nil {
		o.source.Close()
	}
}

// compareOperands opens both operands, and compares or bisects them.
func (a *app) compareOperands(ctx context.Context, nameA, nameB string, o *compareOptions) error {
	if o.model != "" && !isPlan(nameA) && !isPlan(nameB) {
		return usagef("--model names the model of a plan, and neither %s nor %s is one", nameA, nameB)
	}
	flagsB, err := o.forB()
	if err != nil {
		return err
	}
	var opened [2]*openedOperand
	described := []compare.Description{{Letter: "A", Name: nameA}, {Letter: "B", Name: nameB, But: o.but}}
	forProcessor := func(name string) bool { return isPlan(name) && !isCUDAPlan(name) }
	both := forProcessor(nameA) && forProcessor(nameB)
	for i, flags := range []*compileFlags{o.flags, flagsB} {
		if forProcessor(described[i].Name) && !both { // --device applies to the other operand
			flags = flags.withoutDevice()
		}
		if opened[i], err = a.openOperand(ctx, described[i], o, flags); err != nil {
			return err
		}
		defer opened[i].close()
	}
	if err := compare.SameVocabulary(opened[0], opened[1]); err != nil {
		return err
	}
	ids, err := a.comparedTokens(ctx, opened, o)
	if err != nil {
		return err
	}
	a.loaded()
	if o.bisect {
		return a.bisect(ctx, opened, ids, o)
	}
	c, err := compare.Compare(ctx, opened[0].Operand, opened[1].Operand, ids, a.progressOf)
	if err != nil {
		return err
	}
	a.progress("")
	if err := a.show(comparison{c}, o.asJSON); err != nil {
		return err
	}
	if o.given.Changed("max-kl") {
		err = c.CheckKL(o.maxKL.x)
	}
	if err == nil && o.given.Changed("max-d") {
		err = c.CheckD(o.maxD.x)
	}
	return err
}

// openOperand opens a MODEL, which it compiles, a PLAN or a FOLDER.
func (a *app) openOperand(ctx context.Context, is compare.Description, o *compareOptions, flags *compileFlags) (*openedOperand, error) {
	name := is.Name
	if info, err := os.Stat(name); name != demoName && err == nil && info.IsDir() {
		switch {
		case o.bisect:
			return nil, usagef("--bisect compares the steps of two plans, but %s is a folder", name)
		case len(is.But) > 0:
			return nil, usagef("--but changes how B is compiled, but %s is a folder", name)
		}
		folder, err := compare.OpenFolder(is)
		return &openedOperand{Operand: folder}, err
	}
	model := o.model
	if !isPlan(name) {
		model = ""
	}
	s, err := a.open(name, model, flags)
	if err != nil {
		return nil, err
	}
	if !o.bisect {
		s.Options.Compile.Rows = compare.StepTokens // with fewer rows, passes would be repeated for the remaining rows
	}
	if _, err = s.compile(); err != nil {
		s.Close()
		return nil, err
	}
	s.name = is.String() // the other operand may have the same name
	p, err := compare.OpenPlan(s.input(), is)
	if err != nil {
		s.Close()
		return nil, err
	}
	return &openedOperand{p, s}, nil
}

// comparedTokens returns the ids to evaluate, which must be the same for both operands.
func (a *app) comparedTokens(ctx context.Context, operands [2]*openedOperand, o *compareOptions) ([]int32, error) {
	ids, text, err := o.prompt.read(ctx, a)
	if err != nil {
		return nil, err
	}
	from := "--ids"
	for _, x := range operands {
		var own []int32
		switch folder, ok := x.Operand.(*compare.FolderOperand); {
		case ok:
			own = folder.IDs()
		case text != nil:
			if own, err = promptIDs(ctx, x.source, text); err != nil {
				return nil, err
			}
		}
		switch {
		case len(ids) == 0:
			ids, from = own, x.Describe().String()
		case own != nil && !slices.Equal(ids, own):
			return nil, fmt.Errorf("%s: its token ids are %s, expected %s, the ids of %s", x.Describe(), compare.AbbreviateIDs(own), compare.AbbreviateIDs(ids), from)
		}
	}
	if len(ids) == 0 {
		return nil, usagef("no tokens, expected %s", promptWords)
	}
	for _, x := range operands {
		if x.source != nil {
			if err := x.source.checkLength(len(ids)); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

// bisect prints the first step whose value differs.
func (a *app) bisect(ctx context.Context, operands [2]*openedOperand, ids []int32, o *compareOptions) error {
	maxD := compare.DefaultBound(operands[0].source.Plan, operands[1].source.Plan)
	if o.given.Changed("max-d") {
		maxD = o.maxD.x
	}
	b, err := compare.Bisect(ctx, operands[0].Operand.(*compare.PlanOperand), operands[1].Operand.(*compare.PlanOperand), ids, maxD, a.progressOf)
	if err != nil {
		return err
	}
	a.progress("")
	if err := a.show(bisection{b}, o.asJSON); err != nil {
		return err
	}
	if o.given.Changed("max-d") {
		return b.Check()
	}
	return nil
}

// progressOf displays the progress of a comparison.
func (a *app) progressOf(p compare.Progress) { a.progress("%s", oneLine(p.String())) }

// operandLine describes an operand, with the precision and passes of its plan.
func operandLine(d *compare.Description) string {
	text := d.String()
	if d.Precision != "" {
		text += ": " + d.Precision + ", KV cache in " + d.KV
	}
	if d.Passes != "" {
		text += ", passes " + d.Passes
	}
	return oneLine(text) + "\n"
}

// skippedLines has a line for each program that did not run.
func skippedLines(skipped []compare.Skipped) string {
	var b strings.Builder
	for _, s := range skipped {
		fmt.Fprintf(&b, "not run: %s, which %s\n", oneLine(s.Program), s.Why)
	}
	return b.String()
}

// A comparison prints what compare finds.
type comparison struct{ *compare.Comparison }

func (c comparison) print(w io.Writer) error {
	if _, err := io.WriteString(w, operandLine(c.A)+operandLine(c.B)+"\n"); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "program\tmean KL\tmax KL\tposition\tthe same most likely token\n")
	for _, p := range c.Programs {
		fmt.Fprintf(t, "%s\t%.2e\t%.2e\t%d\tat %d of %d positions\n", cmp.Or(oneLine(p.Program), "-"), p.MeanKL, p.MaxKL, p.Position, p.SameTop, c.Tokens)
	}
	if len(c.Layers) > 0 {
		fmt.Fprintf(t, "\nlayer\td\tposition\tdim\tprogram\n")
	}
	for _, l := range c.Layers {
		fmt.Fprintf(t, "%02d\t%.2e\t%d\t%d\t%s\n", l.Layer, l.D, l.Position, l.Dim, cmp.Or(oneLine(l.Program), "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, skippedLines(c.Skipped))
	return err
}

// A bisection prints what compare --bisect finds.
type bisection struct{ *compare.Bisection }

func (r bisection) print(w io.Writer) error {
	var b strings.Builder
	b.WriteString(operandLine(r.A) + operandLine(r.B) + "\n")
	if d := r.First; d != nil {
		fmt.Fprintf(&b, "%s differs: d %.2e at position %d, dim %d\n", oneLine(d.Value), d.D, d.Position, d.Dim)
		for i, is := range []*compare.Description{r.A, r.B} {
			s := d.Steps[i]
			fmt.Fprintf(&b, "  %s: program %s, wave %d, step %d, %s\n", is.Letter, oneLine(s.Program), s.Wave, s.Step, s.Kernel)
		}
		fmt.Fprintf(&b, "  first element above %g: position %d, dim %d: %.7g, then %.7g\n", r.MaxD, d.Element.Position, d.Element.Dim, d.Element.Values[0], d.Element.Values[1])
	} else {
		fmt.Fprintf(&b, "no step differs by more than %g: %d values compared in %s\n", r.MaxD, r.Values, oneLine(strings.Join(r.Programs, ", ")))
		b.WriteString(skippedLines(r.Skipped))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
