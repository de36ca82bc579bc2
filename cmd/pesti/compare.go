package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pesti/conformance/metrics"
)

// compareOptions are the flags of compare, besides those of compile.
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
	cmd := a.verb("compare A B", "Say how far two plans, or a plan and a folder of values, differ",
		`  pesti compare demo demo --but precision=fast -p "Once upon a time"
  pesti compare demo demo --passes none --but passes=-fuse_qkv --ids 1,2,3
  pesti compare model.gguf FOLDER --max-d 1e-4
  pesti compare a.plan b.plan --bisect -p "Once upon a time"`,
		arity{2, 2, "A and B, each a MODEL, a PLAN or a FOLDER"}, func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.compareSides(cmd.Context(), args[0], args[1], o)
		})
	cmd.Long = cmd.Short + `.

A and B are each a MODEL, a PLAN, or a FOLDER as dump writes it, of tokens.npy, logits.npy and
layer_00.npy and so on; A is the one to be trusted. The options of compile are those of A, and of
B too but for what --but changes. Without a prompt the tokens are those of a FOLDER.

All tokens are evaluated by every program of either plan, in steps of a size that it takes; which
program had too few is told. For each it prints the mean and the largest Kullback-Leibler divergence
of B's logits from A's, in nats per token, and at how many positions both have the same most likely
token; and for the residual stream after each block the worst d = max |b - a| / (|a| + median |a|),
the median over a position's dims.

--bisect runs every program of either plan on both, in steps of one size, and names the first step of B that computes another value
than A: by more than --max-d, or else at all where both were compiled alike, or else by d > 1e-4.
With --max-d it also fails where a program did not run.`
	o.prompt = addPromptFlags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&o.but, "but", nil, "`OPTION=VALUE` of compile that B has instead, such as precision=fast; may be given more than once")
	f.Var(&o.maxKL, "max-kl", "fail where the mean divergence is above it")
	f.Var(&o.maxD, "max-d", "fail where d of a layer, or with --bisect of any value, is above it")
	f.BoolVar(&o.bisect, "bisect", false, "name the first step that differs")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.StringVar(&o.model, "model", "", "`MODEL` of a PLAN, where it is not where the plan says")
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
		return usagef("--max-kl is about logits, and --bisect compares values; expected --max-d")
	}
	return nil
}

// forB returns the options of B: those of A but for what --but says.
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

// compareSides opens both sides, and compares or bisects.
func (a *app) compareSides(ctx context.Context, nameA, nameB string, o *compareOptions) error {
	if o.model != "" && !isPlan(nameA) && !isPlan(nameB) {
		return usagef("--model names the model of a plan, and neither %s nor %s is one", nameA, nameB)
	}
	flagsB, err := o.forB()
	if err != nil {
		return err
	}
	var sides [2]side
	reports := []*sideReport{{letter: "A", Name: nameA}, {letter: "B", Name: nameB, But: o.but}}
	forProcessor := func(name string) bool { return isPlan(name) && !isCUDAPlan(name) }
	both := forProcessor(nameA) && forProcessor(nameB)
	for i, flags := range []*compileFlags{o.flags, flagsB} {
		if forProcessor(reports[i].Name) && !both { // --device is for the other one
			flags = flags.withoutDevice()
		}
		if sides[i], err = a.openSide(ctx, reports[i], o, flags); err != nil {
			return err
		}
		defer sides[i].close()
	}
	if va, vb := sides[0].vocab(), sides[1].vocab(); va != vb {
		return fmt.Errorf("%s: a vocabulary of %d tokens, expected the %d of %s", reports[1], vb, va, reports[0])
	}
	ids, err := a.comparedTokens(sides, o)
	if err != nil {
		return err
	}
	a.loaded()
	if o.bisect {
		return a.bisect(ctx, [2]*runner{sides[0].(*runner), sides[1].(*runner)}, ids, o)
	}
	return a.measureSides(ctx, sides, ids, o)
}

// openSide opens a MODEL, which it compiles, a PLAN or a FOLDER.
func (a *app) openSide(ctx context.Context, is *sideReport, o *compareOptions, flags *compileFlags) (side, error) {
	name := is.Name
	if info, err := os.Stat(name); name != demoName && err == nil && info.IsDir() {
		switch {
		case o.bisect:
			return nil, usagef("--bisect compares the steps of two plans, and %s is a folder", name)
		case len(is.But) > 0:
			return nil, usagef("--but is about compiling B, and %s is a folder", name)
		}
		return openFolder(is)
	}
	model := o.model
	if !isPlan(name) {
		model = ""
	}
	s, err := a.open(ctx, name, model, flags)
	if err != nil {
		return nil, err
	}
	if !o.bisect {
		s.options.Rows = mostAtOnce // else steps run again for the next rows
	}
	if _, err = s.compile(); err != nil {
		s.release()
		return nil, err
	}
	target := &s.plan.Target
	is.Precision, is.KV, is.Passes = target.Precision, target.KV, s.plan.Passes
	s.name = is.String() // from here on the other side may be of the same name
	r, err := newRunner(ctx, s)
	if err != nil {
		s.release()
		return nil, err
	}
	r.is = is
	return r, nil
}

// comparedTokens returns the ids to evaluate, which must be the same for both sides.
func (a *app) comparedTokens(sides [2]side, o *compareOptions) ([]int32, error) {
	ids, text, err := o.prompt.read(a)
	if err != nil {
		return nil, err
	}
	from := "--ids"
	for _, s := range sides {
		own, err := s.tokens(text)
		switch {
		case err != nil:
			return nil, err
		case len(ids) == 0:
			ids, from = own, s.report().String()
		case own != nil && !slices.Equal(ids, own):
			return nil, fmt.Errorf("%s: its token ids are %s, expected %s as of %s", s.report(), someIDs(own), someIDs(ids), from)
		}
	}
	if len(ids) == 0 {
		return nil, usagef("no tokens, expected %s", promptWords)
	}
	for _, s := range sides {
		if r, ok := s.(*runner); ok {
			if err := r.checkLength(len(ids)); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

// someIDs prints ids, of many the first ones.
func someIDs(ids []int32) string {
	const most = 8
	if len(ids) <= most {
		return fmt.Sprint(ids)
	}
	return fmt.Sprintf("%d, beginning with %v", len(ids), ids[:most])
}

// A comparison is what compare finds, as --json prints it.
type comparison struct {
	A          *sideReport     `json:"a"`
	B          *sideReport     `json:"b"`
	Tokens     int             `json:"tokens"`
	divergence                 // that of the program with the largest mean
	Programs   []programReport `json:"programs"` // of either plan that ran; one without a name for folders
	Left       []leftOut       `json:"left_out"` // and those that did not
	Layers     []layerReport   `json:"layers"`   // none where a folder has none
}

// A divergence is how far B's logits are from A's.
type divergence struct {
	MeanKL   number  `json:"mean_kl"` // nats per token
	MaxKL    number  `json:"max_kl"`
	Position int     `json:"max_kl_position"`
	SameTop  int     `json:"same_top"` // positions with the same most likely token
	Top1     float64 `json:"top1"`     // the part of the positions that they are
}

// A programReport is the divergence in the steps of one program.
type programReport struct {
	Program string `json:"program"`
	divergence
}

// A layerReport is where a residual stream differs most.
type layerReport struct {
	Layer    int    `json:"layer"`
	D        number `json:"d"`
	Position int    `json:"position"`
	Dim      int    `json:"dim"`
	Program  string `json:"program,omitempty"` // in whose steps
}

// A number may be infinite, which JSON cannot say: there it is null.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(n), 0) || math.IsNaN(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// measureSides evaluates both sides, for every program of either, and prints how they differ.
func (a *app) measureSides(ctx context.Context, sides [2]side, ids []int32, o *compareOptions) error {
	c := &comparison{A: sides[0].report(), B: sides[1].report(), Tokens: len(ids), Left: []leftOut{}, Layers: []layerReport{}}
	var plans []*runner
	for _, s := range sides {
		if r, ok := s.(*runner); ok {
			plans = append(plans, r)
		}
	}
	rounds, left := roundsOf(len(ids), 0, plans...)
	if len(plans) == 0 {
		rounds = []round{inSteps(len(ids))}
	}
	c.Left = append(c.Left, left...)
	for _, r := range rounds {
		if err := a.measureRound(ctx, c, sides, ids, &r); err != nil {
			return err
		}
	}
	a.progress("")
	if err := a.show(c, o.asJSON); err != nil {
		return err
	}
	return c.check(o)
}

// measureRound adds what one round finds.
func (a *app) measureRound(ctx context.Context, c *comparison, sides [2]side, ids []int32, r *round) error {
	var logits metrics.Logits
	vocab := sides[0].vocab()
	err := r.each(ctx, func(from, to int) error {
		a.progress("%s: %d of %d tokens", cmp.Or(r.program, "values"), from, len(ids))
		var p [2]*pass
		for i, s := range sides {
			var err error
			if p[i], err = s.eval(ids, from, to); err != nil {
				return err
			}
		}
		for t := range to - from {
			logits.Add(p[0].logits[t*vocab:(t+1)*vocab], p[1].logits[t*vocab:(t+1)*vocab])
		}
		return c.addLayers(p, r.program, from, to-from)
	})
	if err != nil {
		return err
	}
	d := divergence{number(logits.MeanKL()), number(logits.MaxKL), logits.Worst, logits.SameTop, logits.Top1()}
	if len(c.Programs) == 0 || d.MeanKL > c.MeanKL {
		c.divergence = d
	}
	c.Programs = append(c.Programs, programReport{r.program, d})
	return nil
}

// addLayers compares the residual streams of the tokens from a position on, where both have them.
func (c *comparison) addLayers(p [2]*pass, program string, from, tokens int) error {
	want, got := p[0].layers, p[1].layers
	if len(want) == 0 || len(got) == 0 {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d layers, expected the %d of %s", c.B, len(got), len(want), c.A)
	}
	for n := range want {
		if len(got[n]) != len(want[n]) {
			return fmt.Errorf("%s: layer %d is %d wide, expected %d as in %s", c.B, n, len(got[n])/tokens, len(want[n])/tokens, c.A)
		}
		if len(c.Layers) == n {
			c.Layers = append(c.Layers, layerReport{Layer: n, Program: program})
		}
		d := metrics.Layer(got[n], want[n], len(want[n])/tokens)
		if worst := &c.Layers[n]; number(d.D) > worst.D {
			*worst = layerReport{n, number(d.D), from + d.Row, d.Dim, program}
		}
	}
	return nil
}

func (c *comparison) print(w io.Writer) error {
	if _, err := io.WriteString(w, c.A.line()+c.B.line()+"\n"); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "program\tmean KL\tmax KL\tposition\tthe same most likely token\n")
	for _, p := range c.Programs {
		fmt.Fprintf(t, "%s\t%.2e\t%.2e\t%d\tat %d of %d positions\n", cmp.Or(p.Program, "-"), p.MeanKL, p.MaxKL, p.Position, p.SameTop, c.Tokens)
	}
	if len(c.Layers) > 0 {
		fmt.Fprintf(t, "\nlayer\td\tposition\tdim\tprogram\n")
	}
	for _, l := range c.Layers {
		fmt.Fprintf(t, "%02d\t%.2e\t%d\t%d\t%s\n", l.Layer, l.D, l.Position, l.Dim, cmp.Or(l.Program, "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, sayLeft(c.Left))
	return err
}

// check returns an error where a bound that was given does not hold.
func (c *comparison) check(o *compareOptions) error {
	if o.given.Changed("max-kl") && !(float64(c.MeanKL) <= o.maxKL.x) {
		return fmt.Errorf("%s: mean KL divergence from %s is %.2e, expected at most %g", c.B, c.A, c.MeanKL, o.maxKL.x)
	}
	if !o.given.Changed("max-d") {
		return nil
	}
	if len(c.Layers) == 0 {
		return fmt.Errorf("%s and %s: no layers to compare, expected some for --max-d", c.A, c.B)
	}
	worst := slices.MaxFunc(c.Layers, func(x, y layerReport) int { return cmp.Compare(x.D, y.D) })
	if !(float64(worst.D) <= o.maxD.x) {
		return fmt.Errorf("%s: d from %s is %.2e in layer %d, position %d, expected at most %g", c.B, c.A, worst.D, worst.Layer, worst.Position, o.maxD.x)
	}
	return nil
}
