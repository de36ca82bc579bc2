// Package lower compiles a model to an execution plan.
//
// It contains the options of a compilation, the lowering passes, the order of steps and their
// waves, the placement of buffers, the emission of the plan, and the explanation of all that. It imports
// gguf, gguf/layers, graph, ops, graph/pass, frontend, exec/plan, lower/memplan and the targets' packages. It
// does not import the executor: the two share exec/plan alone.
package lower

import (
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf/sidecar"
	"pesti/graph"
	"pesti/graph/pass"
	"pesti/lower/cpu"
	"pesti/lower/cuda"
	"pesti/lower/target"
)

// Options configure a compilation. The zero value of a field is its default. ISA and Threads default to the
// least, so that the zero Options give the same plan on every machine; package pesti and the command line set
// them to the best instruction set and the number of cores of this machine.
type Options struct {
	Target    string // "cpu" or "cuda"
	ISA       string // instruction set, one of the target's; by default its least, "portable" or "sm_75"
	Precision string // "fast" or "exact"
	KV        string // one of plan.CacheFormats, of which f8_e4m3 may be called fp8; by default f16 in fast, f32 in exact
	Ctx       int64  // positions of a sequence; by default 4096, or what the model was trained for
	Ubatch    int64  // most tokens in a step; by default 512
	Sequences int64  // by default 1
	Threads   int    // by default 1
	Devices   int    // devices among which a model is split, for target "cuda"; by default 1
	Split     string // how it is split: "layers", the default, or "tensor", which splits each matrix by rows or columns
	Tiles     string // "on" adds a program that computes whole chunks of a prompt in tiles of bf16; by default "off"
	Rows      int64  // rows of logits in a step, at most Ubatch; by default max(Sequences, 8)
	Passes    string // "", "none", or "-name,…"

	Activations string // format of activations in integer products in fast: "q8x2" (two int8 planes), "q8" (one), "mixed" (two where one costs most accuracy) or "auto", the default: mixed with ISA avx2, else q8x2

	Host *Host // the part of the model that stays on the processor, for target "cuda"; nil for none

	Planner string // the one of memplan.Planners that places buffers, for experiments; by default the best of all
	File    string // path of the model to write into the plan: absolute, or relative to the folder of the plan's file; "": the embedded model, and with package pesti the absolute path of the model

	Sidecar     *sidecar.File // FP8 matrices that replace the model's, or nil
	SidecarFile string        // path of the sidecar to write into the plan, like File

	Outputs []string // patterns of extra output values, such as blk.*.out

	Verify bool // verify the graph after every pass
	// Dump is called with the text of the graph after each pass that changed it, in order.
	Dump func(name, text string)

	target *target.Target
}

// A Host describes the CPU that runs a part of the model in a plan for CUDA devices.
type Host struct {
	GPULayers int    // number of last layers that run on the devices; more than the model has means all and the output
	ISA       string // by default "portable"
	Threads   int    // by default 1
}

// An OptionError reports a field of Options that the caller has to change.
type OptionError struct {
	Field string // "" if it is about none

	format string // names of fields are in braces
	args   []any
}

func (e *OptionError) Error() string { return e.Text(func(field string) string { return field }) }

// Text returns the error with the caller's name for each field, such as a flag.
func (e *OptionError) Text(name func(field string) string) string { return e.error(name).Error() }

func (e *OptionError) Unwrap() error {
	return errors.Unwrap(e.error(func(field string) string { return field }))
}

func (e *OptionError) error(name func(field string) string) error {
	return fmt.Errorf(optionField.ReplaceAllStringFunc(e.format, func(s string) string { return name(s[1 : len(s)-1]) }), e.args...)
}

var optionField = regexp.MustCompile(`\{[A-Za-z]+\}`)

// optionErrorf returns an error for the first field in braces in the format.
func optionErrorf(format string, args ...any) error {
	return &OptionError{strings.Trim(optionField.FindString(format), "{}"), format, args}
}

// A Result is a plan with the graphs and passes that it came from.
type Result struct {
	Plan   *plan.Plan
	Built  *graph.Graph // by the frontend
	Fused  *graph.Graph // after the graph passes
	Passes []pass.Pass  // run for the largest program, in order
	Notes  []pass.Note  // what each pass did or declined

	Fallbacks []Fallback // of all programs
}

// Defaults and limits of options.
const (
	defaultCtx    = 4096
	defaultUbatch = 512
	defaultRows   = 8
	maxSequences  = 1 << 12
	maxDevices    = 64
)

// Targets returns the supported targets, the default first.
func Targets() []*target.Target { return []*target.Target{cpu.Target(), cuda.Target()} }

// Passes returns all passes, graph passes first, for pass lists and help texts.
func Passes() []pass.Pass {
	return slices.Concat(pass.Graph(), loweringPasses(deviceTargets{{}, {program: target.Program{Prologue: true}}}))
}

// Compile compiles a model to a verified plan. Errors of options are OptionErrors.
func Compile(m *frontend.Model, o Options) (*Result, error) {
	if err := o.complete(m.Params); err != nil {
		return nil, err
	}
	if o.Sidecar != nil {
		m = m.Retype(sidecar.Type, o.Sidecar.Names())
	}
	g, err := m.Graph(frontend.Bounds{Tokens: o.Ubatch, Sequences: o.Sequences, Rows: o.Rows, Context: o.Ctx})
	if err != nil {
		return nil, err
	}
	return CompileGraph(m, g, o)
}

// CompileGraph compiles a graph of the model to a verified plan: a graph that m.Graph built, or an
// edited one. Its bounds must equal those of o.
func CompileGraph(m *frontend.Model, g *graph.Graph, o Options) (*Result, error) {
	return compileGraph(m, g, o, tables{pass.Graph(), loweringPasses})
}

// tables holds the passes of a compilation in order. Tests change it.
type tables struct {
	graph    []pass.Pass
	lowering func(deviceTargets) []pass.Pass
}

func compileGraph(m *frontend.Model, g *graph.Graph, o Options, passes tables) (*Result, error) {
	if err := o.complete(m.Params); err != nil {
		return nil, err
	}
	off, err := pass.ParseSet(o.Passes, Passes())
	if err != nil {
		return nil, optionErrorf("{Passes}: %w", err)
	}
	if err := graph.Verify(g); err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, err)
	}
	for _, b := range []struct {
		sym  graph.Sym
		want int64
	}{{graph.T, o.Ubatch}, {graph.S, o.Sequences}, {graph.R, o.Rows}, {graph.C, o.Ctx}} {
		if got := g.Max(b.sym); got != b.want {
			return nil, fmt.Errorf("%s: the graph is for %s <= %d, expected %d as in the options", m.File.Path, b.sym, got, b.want)
		}
	}
	if err := markOutputs(g, o.Outputs); err != nil {
		return nil, err
	}
	res := &Result{Built: g}
	o.dump("graph", g)
	split, err := o.partition(g, len(m.Params.Layers), off)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, err)
	}
	g, res.Notes = split.graph, split.notes
	fused := g.Clone()
	notes, err := pass.Run(fused, passes.graph, pass.Options{Off: off, Verify: o.Verify, After: o.after("")})
	if err != nil {
		return nil, err
	}
	res.Fused, res.Notes = fused, append(res.Notes, notes...)
	inPlace := sync.OnceValues(func() (*graph.Graph, error) {
		return rowsInPlace(g, passes.graph, pass.Options{Off: off, Verify: o.Verify})
	})

	p := newPlan(m, &o)
	reference := off.Has("choose_kernels")
	states, err := addShared(p, fused, &o)
	if err == nil {
		err = addTables(p, fused, &o, &states, reference)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, err)
	}
	var rounded *target.Rounding // choice of integer formats for activations
	if o.Precision == "fast" && !off.Has("insert_quantize") {
		rounded = &o.target.Integers[slices.Index(o.target.RoundingNames(), o.Activations)]
	}
	var layouts []*layout
	tiles := rounded != nil && !reference && o.Tiles == "on"
	for _, prog := range o.target.Programs(target.Bounds{Ubatch: o.Ubatch, Sequences: o.Sequences, Tiles: tiles}) {
		from := fused
		if prog.AllRows {
			if from, err = inPlace(); err != nil {
				return nil, err
			}
		}
		lowered := from.Clone()
		bound(lowered, prog)
		targets := o.deviceTargets(prog, rounded)
		steps := passes.lowering(targets)
		notes, err := pass.Run(lowered, steps, pass.Options{Off: off, Verify: o.Verify, After: o.after(prog.Name + ".")})
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", prog.Name, err)
		}
		if prog.MaxTokens == o.Ubatch && prog.Chunk == 0 {
			res.Passes, res.Notes = slices.Concat(split.passes, passes.graph, steps), append(res.Notes, notes...)
		}
		l, fallbacks, err := schedule(p, lowered, targets, states, reference)
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", prog.Name, err)
		}
		res.Fallbacks = append(res.Fallbacks, fallbacks...)
		layouts = append(layouts, l)
	}
	if err := addWeights(p, m, g, o.Sidecar); err != nil {
		return nil, err
	}
	if err := place(p, layouts, o.Planner); err != nil {
		return nil, err
	}
	p.Fusions = plan.CountFusions(p)
	if err := plan.Verify(p); err != nil {
		return nil, fmt.Errorf("%s: the compiled plan does not verify: %w", m.File.Path, err)
	}
	res.Plan = p
	return res, nil
}

// fp8 is the word for sidecar.Type in options.
const fp8 = "fp8"

// anyOf lists the accepted words of an option.
func anyOf(words []string) string {
	words = slices.Clone(words)
	for i, w := range words {
		if w == sidecar.Type {
			words[i] = fp8
		}
	}
	if last := len(words) - 1; last > 0 {
		return strings.Join(words[:last], ", ") + " or " + words[last]
	}
	return strings.Join(words, "")
}

// complete fills in defaults and checks all options.
func (o *Options) complete(p *frontend.Params) error {
	targets := Targets()
	set := func(s *string, def, field string, allowed ...string) error {
		if *s == "" {
			*s = def
		}
		if !slices.Contains(allowed, *s) {
			since := ""
			if o.Target != targets[0].Name && field != "Target" {
				since = ", since {Target} is " + o.Target
			}
			return optionErrorf("{"+field+"} is %q, expected %s"+since, *s, anyOf(allowed))
		}
		return nil
	}
	within := func(n *int64, def, most int64, field, why string) error {
		if *n == 0 {
			*n = def
		}
		if *n < 1 || *n > most {
			return optionErrorf("{"+field+"} is %d, expected 1 to %d%s", *n, most, why)
		}
		return nil
	}
	if err := set(&o.Target, targets[0].Name, "Target", target.Names(targets)...); err != nil {
		return err
	}
	o.target = targets[slices.Index(target.Names(targets), o.Target)]
	threads, devices := int64(o.Threads), int64(o.Devices)
	if most := int64(o.target.Threads); most > 0 {
		threads = min(threads, most)
	}
	if o.KV == fp8 {
		o.KV = sidecar.Type
	}
	for _, err := range []error{
		set(&o.ISA, o.target.ISAs[0], "ISA", o.target.ISAs...),
		set(&o.Activations, "auto", "Activations", append([]string{"auto"}, o.target.RoundingNames()...)...),
		set(&o.Split, "layers", "Split", "layers", "tensor"),
		set(&o.Tiles, "off", "Tiles", "on", "off"),
		set(&o.Precision, "fast", "Precision", "fast", "exact"),
		set(&o.KV, map[string]string{"fast": "f16", "exact": "f32"}[o.Precision], "KV", o.target.Caches...),
		within(&o.Ctx, min(defaultCtx, p.Context), p.Context, "Ctx", ", the context that the model was trained for"),
		within(&o.Sequences, 1, maxSequences, "Sequences", ""),
		within(&o.Ubatch, min(defaultUbatch, o.Ctx), 1<<16, "Ubatch", ""),
		within(&threads, 1, plan.MaxThreads, "Threads", ""),
		within(&devices, 1, maxDevices, "Devices", ""),
		within(&o.Rows, max(o.Sequences, defaultRows), math.MaxInt64, "Rows", ""),
	} {
		if err != nil {
			return err
		}
	}
	o.Threads, o.Rows, o.Devices = int(threads), min(o.Rows, o.Ubatch), int(devices)
	if err := o.completeHost(p); err != nil {
		return err
	}
	switch {
	case o.Split == "tensor" && o.Devices == 1:
		return optionErrorf("{Split} is tensor, expected {Devices} 2 or more with it")
	case o.Devices > 1 && o.Target != plan.CUDA:
		return optionErrorf("{Devices} is %d, expected 1, since {Target} is %s: only %s has several", o.Devices, o.Target, plan.CUDA)
	case o.Activations != "auto" && o.Precision != "fast":
		return optionErrorf("{Activations} is %s, expected auto, since {Precision} is %s, which rounds no activations", o.Activations, o.Precision)
	case o.Tiles == "on" && o.Precision != "fast":
		return optionErrorf("{Tiles} is on, expected off, since tiles round and {Precision} is %s", o.Precision)
	case o.Tiles == "on" && o.target.Tiles == 0:
		return optionErrorf("{Tiles} is on, expected off, since {Target} is %s", o.Target)
	case o.Tiles == "on" && o.Ubatch < o.target.Tiles:
		return optionErrorf("{Tiles} is on, expected off, since they take %d tokens and {Ubatch} is %d", o.target.Tiles, o.Ubatch)
	}
	if o.Activations == "auto" && o.Precision == "fast" {
		o.Activations = o.target.DefaultRounding(o.ISA)
	}
	if o.Sequences > o.Ubatch {
		return optionErrorf("{Sequences} is %d, expected at most {Ubatch} %d, since a step holds a token of each", o.Sequences, o.Ubatch)
	}
	return nil
}

// rowsInPlace returns g after all graph passes except the one that drops rows early, for programs
// that output the logits of nearly all rows.
func rowsInPlace(g *graph.Graph, passes []pass.Pass, o pass.Options) (*graph.Graph, error) {
	c := g.Clone()
	_, err := pass.Run(c, slices.DeleteFunc(slices.Clone(passes), func(p pass.Pass) bool { return p.Name == "sink_rows" }), o)
	return c, err
}

func (o *Options) dump(name string, g *graph.Graph) {
	if o.Dump != nil {
		o.Dump(name, graph.Print(g))
	}
}

// after returns a pass.Options.After that calls Dump, or nil without Dump.
func (o *Options) after(prefix string) func(int, string, *graph.Graph) {
	if o.Dump == nil {
		return nil
	}
	return func(number int, name string, g *graph.Graph) { o.dump(prefix+name, g) }
}

// markOutputs adds the values that match one of the patterns to the graph's outputs.
func markOutputs(g *graph.Graph, patterns []string) error {
	for _, pattern := range patterns {
		found := false
		for _, n := range g.Nodes {
			for _, v := range n.Out {
				ok, err := path.Match(pattern, v.Name)
				if err != nil {
					return optionErrorf("{Outputs}: pattern %q: %w", pattern, err)
				}
				if ok && v.Type.DType == graph.F32 {
					found = true
					if !g.IsOutput(v) {
						g.Outputs = append(g.Outputs, v)
					}
				}
			}
		}
		if !found {
			return optionErrorf("{Outputs}: pattern %q matches no value of the graph; see the text of the graph for its names", pattern)
		}
	}
	return nil
}

// bound sets the largest numbers of tokens and of rows, which are at most the tokens. The program
// with a chunk does not output the logits of whole chunks: a caller that asks for them compares
// them with the logits of single tokens, so such runs do not use tiles.
func bound(g *graph.Graph, prog target.Program) {
	rows := prog.MaxTokens
	if prog.Chunk > 0 {
		rows = prog.Chunk - 1
	}
	for i := range g.Bounds {
		switch b := &g.Bounds[i]; b.Sym {
		case graph.T:
			b.Max = min(b.Max, prog.MaxTokens)
		case graph.R:
			b.Max = min(b.Max, rows)
		}
	}
}
