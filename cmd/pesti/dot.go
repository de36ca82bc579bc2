package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pesti/graph/draw"
	"pesti/lower"
)

// dotOptions are the flags of dot, without those of compile.
type dotOptions struct {
	out     string
	view    choice
	stage   choice
	program string
	layer   count
	all     bool
	profile string
}

func (a *app) dot() *cobra.Command {
	o := &dotOptions{
		view:  choice{"flow", []string{"flow", "memory"}},
		stage: choice{"plan", []string{"graph", "fused", "plan"}},
		layer: count{-1, 0},
	}
	var flags *compileFlags
	cmd := a.verb("dot MODEL|PLAN", "Draw a graph or a plan",
		`  pesti dot model.gguf -o plan.svg
  pesti dot model.plan --view memory --program prefill -o memory.png
  pesti dot model.gguf --profile bench.json -o profile.svg`,
		arity{1, 1, "MODEL or PLAN"}, a.interruptible(func(cmd *cobra.Command, args []string) error {
			format, err := o.format()
			if err != nil {
				return err
			}
			if o.program != "" && o.stage.word != "plan" {
				return usagef("--program names a program of a plan, and --stage is %s", o.stage.word)
			}
			if o.profile != "" && (o.stage.word != "plan" || o.view.word != "flow") {
				return usagef("--profile colors the steps of a plan, expected --stage plan and --view flow")
			}
			render, err := a.draw(cmd.Context(), args[0], o, flags)
			if err != nil {
				return err
			}
			if o.out != "" && o.out != standardStream && format != dotText {
				a.progress("drawing %s", o.out)
			}
			picture := &bytes.Buffer{}
			if err := render(format, picture); err != nil {
				return about(args[0], err)
			}
			return a.output(cmd.Context(), cmp.Or(o.out, standardStream), func(w io.Writer) error {
				_, err := picture.WriteTo(w)
				return err
			})
		}))
	cmd.Long = cmd.Short + `.

--view flow draws the graph or the steps of the plan, as dot text, .svg or .png. --view memory draws the
arena of a plan, as .svg or .png: each buffer is a rectangle, with steps to the right and addresses upwards.

Equal layers are drawn once. --all draws every layer, which takes some seconds, and ten or more for a .png.`
	f := cmd.Flags()
	f.StringVarP(&o.out, "output", "o", "", "`FILE` to write, which ends in .dot, .svg or .png (default standard output: dot text, or svg for --view memory)")
	f.Var(&o.view, "view", "flow draws nodes or steps with the values between them, memory draws the arena")
	f.Var(&o.stage, "stage", "graph is the graph as built, fused the graph after passes, plan the plan")
	f.Var(&o.layer, "layer", "draw block N alone")
	f.BoolVar(&o.all, "all", false, "draw every layer and every program")
	f.StringVar(&o.program, "program", "", "`NAME` of the program of the plan to draw (default the first; with --all, every program)")
	f.StringVar(&o.profile, "profile", "", "color the plan by the times in `FILE`, which --profile of run or bench wrote for this plan")
	f.Lookup("layer").DefValue = ""
	flags = addCompileFlags(cmd, "fast")
	return cmd
}

// dotText is the format of pictures without a layout.
const dotText = "dot"

// viewFormats are the formats of each view. The first is the format for standard output.
var viewFormats = map[string][]string{
	"flow":   {dotText, "svg", "png"},
	"memory": {"svg", "png"},
}

// format returns the format for the file's extension.
func (o *dotOptions) format() (string, error) {
	formats := viewFormats[o.view.word]
	if o.view.word == "memory" && o.stage.word != "plan" {
		return "", usagef("--view memory draws a plan, and --stage is %s", o.stage.word)
	}
	if o.out == "" || o.out == standardStream {
		return formats[0], nil
	}
	format := strings.TrimPrefix(strings.ToLower(filepath.Ext(o.out)), ".")
	if !slices.Contains(formats, format) {
		return "", usagef("-o %s: expected a name that ends in .%s", o.out, strings.Join(formats, ", ."))
	}
	return format, nil
}

// A renderer writes a picture in a format.
type renderer func(format string, w io.Writer) error

// draw draws one stage of the model or plan called name.
func (a *app) draw(ctx context.Context, name string, o *dotOptions, flags *compileFlags) (renderer, error) {
	options := draw.Options{All: o.all, Layer: int(o.layer.n), Program: o.program}
	res := &lower.Result{}
	if isPlan(name) { // a plan is drawn without its model
		if o.stage.word != "plan" {
			return nil, usagef("--stage %s: %s is a plan, which has no graph; expected --stage plan, or a model", o.stage.word, name)
		}
		var err error
		if res.Plan, _, err = a.readPlan(name, flags); err != nil {
			return nil, err
		}
	} else {
		s, err := a.open(name, "", flags)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if res, err = s.compile(); err != nil {
			return nil, err
		}
	}
	if o.profile != "" {
		var err error
		if options.Times, err = a.readProfile(o.profile, res.Plan); err != nil {
			return nil, err
		}
	}
	options.Stage = o.stage.word
	options.Title = res.Plan.Model.Name // graphs are named after the architecture
	var text string
	var chart *draw.Chart
	var err error
	switch {
	case o.view.word == "memory":
		chart, err = draw.Memory(res.Plan, options)
	case o.stage.word == "graph":
		text, err = draw.Graph(res.Built, options)
	case o.stage.word == "fused":
		text, err = draw.Graph(res.Fused, options)
	default:
		text, err = draw.Plan(res.Plan, options)
	}
	switch {
	case err != nil: // no such block or program
		return nil, usage{about(name, err)}
	case chart != nil:
		return chart.Render, nil
	}
	return func(format string, w io.Writer) error {
		if format == dotText {
			_, err := io.WriteString(w, text)
			return err
		}
		return draw.Render(text, format, w)
	}, nil
}
