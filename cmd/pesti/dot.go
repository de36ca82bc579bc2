package main

import (
	"bytes"
	"cmp"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"pesti/graph/draw"
	"pesti/lower"
)

// dotOptions are the flags of dot, besides those of compile.
type dotOptions struct {
	out     string
	stage   choice
	program string
	layer   count
	all     bool
}

func (a *app) dot() *cobra.Command {
	o := &dotOptions{
		stage: choice{"plan", []string{"graph", "fused", "plan"}},
		layer: count{-1, 0},
	}
	var flags *compileFlags
	cmd := a.verb("dot MODEL|PLAN", "Draw a graph or a plan",
		`  pesti dot model.gguf -o plan.svg`,
		arity{1, 1, "MODEL or PLAN"}, a.interruptible(func(cmd *cobra.Command, args []string) error {
			format, err := pictureFormat(o.out)
			if err != nil {
				return err
			}
			if o.program != "" && o.stage.word != "plan" {
				return usagef("--program is of a plan, and --stage is %s", o.stage.word)
			}
			text, err := a.draw(args[0], o, flags)
			if err != nil {
				return err
			}
			picture := bytes.NewBufferString(text)
			if format != "dot" {
				a.progress("drawing %s", o.out)
				picture.Reset()
				if err := draw.Render(text, format, picture); err != nil {
					return about(args[0], err)
				}
			}
			return a.output(cmd.Context(), cmp.Or(o.out, standardStream), func(w io.Writer) error {
				_, err := picture.WriteTo(w)
				return err
			})
		}))
	f := cmd.Flags()
	f.StringVarP(&o.out, "output", "o", "", "`FILE` to write, .dot, .svg or .png; - or none is dot text on standard output")
	f.Var(&o.stage, "stage", "the graph as built, after fusion, or the plan")
	f.Var(&o.layer, "layer", "only block N")
	f.BoolVar(&o.all, "all", false, "everything, nothing folded")
	f.StringVar(&o.program, "program", "", "`NAME` of the program of the plan to draw (default the first, with --all every one)")
	f.Lookup("layer").DefValue = ""
	flags = addCompileFlags(cmd, "fast")
	return cmd
}

// pictureFormat returns the format that a file name asks for.
func pictureFormat(path string) (string, error) {
	switch format := strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), "."); {
	case path == "", path == standardStream:
		return "dot", nil
	case format == "dot", format == "svg", format == "png":
		return format, nil
	}
	return "", usagef("-o %s: expected a name that ends in .dot, .svg or .png", path)
}

// draw returns the dot text of one stage of the model or plan called name.
func (a *app) draw(name string, o *dotOptions, flags *compileFlags) (text string, err error) {
	options := draw.Options{All: o.all, Layer: int(o.layer.n), Program: o.program}
	res := &lower.Result{}
	if isPlan(name) { // which is drawn without its model
		if o.stage.word != "plan" {
			return "", usagef("--stage %s: %s is a plan, which has no graph; expected --stage plan, or a model", o.stage.word, name)
		}
		if res.Plan, _, err = readPlan(name, flags); err != nil {
			return "", err
		}
	} else {
		s, err := a.open(name, "", flags)
		if err != nil {
			return "", err
		}
		defer s.file.Close()
		if res, err = s.compile(nil); err != nil {
			return "", err
		}
	}
	options.Title = res.Plan.Model.Name // graphs are named after the architecture
	switch o.stage.word {
	case "graph":
		text, err = draw.Graph(res.Built, options)
	case "fused":
		text, err = draw.Graph(res.Fused, options)
	default:
		text, err = draw.Plan(res.Plan, options)
	}
	if err != nil { // no such block or program
		return "", usage{about(name, err)}
	}
	return text, nil
}
