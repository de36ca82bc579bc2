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

	"pesti/conformance/measure"
	"pesti/frontend"
	"pesti/lower"
)

// compareOptions are the flags of compare, besides those of compile.
type compareOptions struct {
	prompt, promptFile, ids string
	but                     []string
	model                   string
	bisect, asJSON          bool
	maxKL, maxD             bound
	flags                   *compileFlags
	given                   *pflag.FlagSet // to ask which flags were given
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

It prints the mean and the largest Kullback-Leibler divergence of B's logits from A's, in nats per
token; at how many positions both have the same most likely token; and for the residual stream
after each block the worst d = max |b - a| / (|a| + median |a|), the median over a position's dims.

--bisect runs every program of two plans and names the first step of B that computes another value
than A: by more than --max-d, or else at all where both were compiled alike, or else by d > 1e-4.`
	f := cmd.Flags()
	f.StringVarP(&o.prompt, "prompt", "p", "", "`TEXT` to evaluate")
	f.StringVarP(&o.promptFile, "file", "f", "", "`FILE` with the text to evaluate, taken byte for byte; - is standard input")
	f.StringVar(&o.ids, "ids", "", "`LIST` of token ids to evaluate, in place of a text")
	f.StringArrayVar(&o.but, "but", nil, "`OPTION=VALUE` of compile that B has instead, such as precision=fast; may be given more than once")
	f.Var(&o.maxKL, "max-kl", "fail where the mean divergence is above it")
	f.Var(&o.maxD, "max-d", "fail where d of a layer, or with --bisect of any value, is above it")
	f.BoolVar(&o.bisect, "bisect", false, "name the first step that differs")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.StringVar(&o.model, "model", "", "`MODEL` of a PLAN, where it is not where the plan says")
	o.flags = addCompileFlags(cmd, "exact")
	o.given = f
	return cmd
}

// A bound is the value of a flag that takes a number, 0 or more.
type bound struct{ x float64 }

func (b *bound) String() string { return "" }
func (b *bound) Type() string   { return "X" }

func (b *bound) Set(s string) error {
	var rest string
	if n, _ := fmt.Sscanf(s+" .", "%g %s", &b.x, &rest); n != 2 || rest != "." || !(b.x >= 0) {
		return fmt.Errorf("expected a number, 0 or more")
	}
	return nil
}

func (o *compareOptions) check() error {
	count := 0
	for _, name := range []string{"prompt", "file", "ids"} {
		if o.given.Changed(name) {
			count++
		}
	}
	if count > 1 {
		return usagef("expected one of -p TEXT, -f FILE and --ids LIST")
	}
	if o.bisect && o.given.Changed("max-kl") {
		return usagef("--max-kl is about logits, and --bisect compares values; expected --max-d")
	}
	return nil
}

// forB returns the options of B: those of A but for what --but says.
func (o *compareOptions) forB() (*compileFlags, error) {
	b := addCompileFlags(&cobra.Command{}, "exact")
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
	for i, name := range []string{nameA, nameB} {
		flags := []*compileFlags{o.flags, flagsB}[i]
		if sides[i], err = a.openSide(ctx, name, o, flags); err != nil {
			return err
		}
		defer sides[i].close()
	}
	if va, vb := sides[0].vocab(), sides[1].vocab(); va != vb {
		return fmt.Errorf("%s: a vocabulary of %d tokens, expected the %d of %s", nameB, vb, va, nameA)
	}
	ids, err := a.comparedTokens(sides, o)
	if err != nil {
		return err
	}
	if o.bisect {
		return a.bisect(ctx, [2]*runner{sides[0].(*runner), sides[1].(*runner)}, ids, o)
	}
	return a.measureSides(ctx, sides, ids, o)
}

// openSide opens a MODEL, which it compiles, a PLAN or a FOLDER.
func (a *app) openSide(ctx context.Context, name string, o *compareOptions, flags *compileFlags) (side, error) {
	if info, err := os.Stat(name); name != demoName && err == nil && info.IsDir() {
		switch {
		case o.bisect:
			return nil, usagef("--bisect compares the steps of two plans, and %s is a folder", name)
		case flags != o.flags && len(o.but) > 0:
			return nil, usagef("--but is about compiling B, and %s is a folder", name)
		}
		return openFolder(name)
	}
	model := o.model
	if !isPlan(name) {
		model = ""
	}
	s, err := a.open(name, model, flags)
	if err != nil {
		return nil, err
	}
	_, err = s.compile(func(c *lower.Options, p *frontend.Params) {
		if !o.bisect { // the logits of all tokens of a step are wanted
			c.Rows = min(mostAtOnce, cmp.Or(c.Ubatch, 512), cmp.Or(c.Ctx, p.Context))
		}
	})
	if err != nil {
		s.file.Close()
		return nil, err
	}
	r, err := newRunner(ctx, s)
	if err != nil {
		s.file.Close()
		return nil, err
	}
	return r, nil
}

// comparedTokens returns the ids to evaluate, which must be the same for both sides.
func (a *app) comparedTokens(sides [2]side, o *compareOptions) ([]int32, error) {
	ids, err := parseIDs(o.ids)
	if err != nil {
		return nil, usagef("--ids: %w", err)
	}
	from := "--ids"
	var text []byte
	switch {
	case o.given.Changed("prompt"):
		text = []byte(o.prompt)
	case o.given.Changed("file"):
		if text, err = a.promptFile(o.promptFile); err != nil {
			return nil, err
		}
	}
	for _, s := range sides {
		own, err := s.tokens(text)
		switch {
		case err != nil:
			return nil, err
		case len(ids) == 0:
			ids, from = own, s.title()
		case own != nil && !slices.Equal(ids, own):
			return nil, fmt.Errorf("%s: its token ids are %s, expected %s as of %s", s.title(), someIDs(own), someIDs(ids), from)
		}
	}
	if len(ids) == 0 {
		return nil, usagef("no tokens, expected one of -p TEXT, -f FILE and --ids LIST")
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
	A        string        `json:"a"`
	B        string        `json:"b"`
	Tokens   int           `json:"tokens"`
	MeanKL   number        `json:"mean_kl"` // of B from A, nats per token
	MaxKL    number        `json:"max_kl"`
	Position int           `json:"max_kl_position"`
	SameTop  int           `json:"same_top"` // positions with the same most likely token
	Top1     float64       `json:"top1"`     // the part of the positions that they are
	Layers   []layerReport `json:"layers"`   // none where a folder has none
}

// A layerReport is where a residual stream differs most.
type layerReport struct {
	Layer    int    `json:"layer"`
	D        number `json:"d"`
	Position int    `json:"position"`
	Dim      int    `json:"dim"`
}

// A number may be infinite, which JSON cannot say: there it is null.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(n), 0) || math.IsNaN(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// measureSides evaluates both sides in steps of equal size, and prints how they differ.
func (a *app) measureSides(ctx context.Context, sides [2]side, ids []int32, o *compareOptions) error {
	c := &comparison{A: sides[0].title(), B: sides[1].title(), Tokens: len(ids), Layers: []layerReport{}}
	var logits measure.Logits
	step := min(sides[0].most(), sides[1].most())
	for from := 0; from < len(ids); from += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		a.progress("%d of %d tokens", from, len(ids))
		to := min(from+step, len(ids))
		var p [2]*pass
		for i, s := range sides {
			var err error
			if p[i], err = s.eval(ids, from, to); err != nil {
				return err
			}
		}
		vocab := sides[0].vocab()
		for t := range to - from {
			logits.Add(p[0].logits[t*vocab:(t+1)*vocab], p[1].logits[t*vocab:(t+1)*vocab])
		}
		if err := c.addLayers(p, from, to-from); err != nil {
			return err
		}
	}
	a.progress("")
	c.MeanKL, c.MaxKL, c.Position = number(logits.MeanKL()), number(logits.MaxKL), logits.Worst
	c.SameTop, c.Top1 = logits.SameTop, logits.Top1()
	show := func() error { return c.print(a.stdout) }
	if o.asJSON {
		show = func() error { return a.printJSON(c) }
	}
	if err := show(); err != nil {
		return err
	}
	return c.check(o)
}

// addLayers compares the residual streams of the tokens from a position on, where both have them.
func (c *comparison) addLayers(p [2]*pass, from, tokens int) error {
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
			c.Layers = append(c.Layers, layerReport{Layer: n})
		}
		d := measure.Layer(got[n], want[n], len(want[n])/tokens)
		if worst := &c.Layers[n]; number(d.D) > worst.D {
			worst.D, worst.Position, worst.Dim = number(d.D), from+d.Row, d.Dim
		}
	}
	return nil
}

func (c *comparison) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "tokens\t%d\n", c.Tokens)
	fmt.Fprintf(t, "mean KL\t%.2e\n", float64(c.MeanKL))
	fmt.Fprintf(t, "max KL\t%.2e at position %d\n", float64(c.MaxKL), c.Position)
	fmt.Fprintf(t, "top-1\t%.2f %%, %d of %d\n", 100*c.Top1, c.SameTop, c.Tokens)
	if len(c.Layers) > 0 {
		fmt.Fprintf(t, "\nlayer\td\tposition\tdim\n")
	}
	for _, l := range c.Layers {
		fmt.Fprintf(t, "%02d\t%.2e\t%d\t%d\n", l.Layer, float64(l.D), l.Position, l.Dim)
	}
	return t.Flush()
}

// check returns an error where a bound that was given does not hold.
func (c *comparison) check(o *compareOptions) error {
	if o.given.Changed("max-kl") && !(float64(c.MeanKL) <= o.maxKL.x) {
		return fmt.Errorf("%s: mean KL divergence from %s is %.2e, expected at most %g", c.B, c.A, float64(c.MeanKL), o.maxKL.x)
	}
	if !o.given.Changed("max-d") {
		return nil
	}
	if len(c.Layers) == 0 {
		return fmt.Errorf("%s and %s: no layers to compare, expected some for --max-d", c.A, c.B)
	}
	worst := slices.MaxFunc(c.Layers, func(x, y layerReport) int { return cmp.Compare(x.D, y.D) })
	if !(float64(worst.D) <= o.maxD.x) {
		return fmt.Errorf("%s: d from %s is %.2e in layer %d, position %d, expected at most %g", c.B, c.A, float64(worst.D), worst.Layer, worst.Position, o.maxD.x)
	}
	return nil
}
