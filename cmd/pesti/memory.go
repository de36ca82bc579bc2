package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	lib "pesti"
	"pesti/exec"
	"pesti/exec/plan"
)

// memoryFlags are the compile options that affect the memory of a plan.
var memoryFlags = []string{"precision", "kv", "ctx", "ubatch", "sequences", "threads", "isa", "activations", "tiles", "passes", "planner", "weights"}

const memoryHelp = `With --memory the model is compiled for contexts of 512, 1024, 2048, … positions, up to --ctx or the length
that it was trained for. The table has the memory that run needs when the context is full:

  weights   the part of the model file that kernels read. If only look-ups read the table of embeddings,
            this has the rows for one forward pass of the maximum number of tokens.
  packed    weights in the layout of a kernel
  KV cache  keys and values of all positions of all sequences
  values    intermediate values in the arena, at their peak
  scratch   working memory of kernels: the bytes by which it enlarges the arena. Scratch can also use
            parts of the arena where no value is live, which are not counted twice.
  io        inputs, logits and other outputs
  process   vocabulary, plan and the process itself, measured now
  total     the sum of all columns; values and scratch together are the arena

The last column, fits, compares the total with the memory that is available now. Only Linux reports that.
All verbs that run a plan refuse one that does not fit.`

// firstCtx is the first context of the table.
const firstCtx = 512

// A memoryReport is the result of inspect --memory, as --json prints it. All sizes are in bytes.
type memoryReport struct {
	File      string      `json:"file"`
	RAM       exec.RAM    `json:"ram"` // zero if the system does not report it
	Ubatch    int64       `json:"ubatch"`
	Sequences int64       `json:"sequences"`
	Threads   int         `json:"threads"`
	Plans     []memoryRow `json:"plans"`
}

// A memoryRow is the memory that one plan needs.
type memoryRow struct {
	Precision string `json:"precision"`
	KV        string `json:"kv"`
	Ctx       int64  `json:"ctx"`
	Weights   int64  `json:"weights"`
	Packed    int64  `json:"packed"`
	State     int64  `json:"state"`
	Arena     int64  `json:"arena"`   // values and scratch
	Values    int64  `json:"values"`  // peak of values
	Scratch   int64  `json:"scratch"` // the rest of the arena
	IO        int64  `json:"io"`
	Program   int64  `json:"program"` // the process: vocabulary, plan, Go runtime
	Total     int64  `json:"total"`
	Fits      *bool  `json:"fits"` // null if the system does not report memory
}

// inspectMemory prints how much memory the model called name needs.
func (a *app) inspectMemory(name string, flags *compileFlags, asJSON bool) error {
	o, err := flags.options(a)
	if err != nil {
		return err
	}
	start := ownMemory()
	s, err := a.openSource(name, lib.Options{Compile: o, Weights: flags.weights})
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := s.Load()
	if err != nil {
		return err
	}
	s.Tokenizer() // for its memory; a model without a vocabulary has a table too
	r := &memoryReport{File: s.File.Path, RAM: exec.DetectRAM()}
	program := int64(0)
	if trained := m.Params.Context; flags.ctx.n > trained { // checked before other contexts are compiled
		return usagef("%s: --ctx is %d, expected 1 to %d, the context that the model was trained for", s.File.Path, flags.ctx.n, trained)
	}
	for _, s.Options.Compile.Precision = range precisions(o.Precision) {
		for _, s.Options.Compile.Ctx = range contexts(cmp.Or(flags.ctx.n, m.Params.Context)) {
			a.progress("compiling for a context of %d", s.Options.Compile.Ctx)
			res, err := s.Compile()
			if err != nil {
				return about(s.File.Path, err)
			}
			if len(r.Plans) == 0 { // like run, at its start
				program = max(ownMemory()-start, 0)
			}
			r.add(res.Plan, program)
		}
	}
	a.progress("")
	return a.show(r, asJSON)
}

// precisions returns the given precision, or both if none is given.
func precisions(asked string) []string {
	if asked != "" {
		return []string{asked}
	}
	return []string{"exact", "fast"}
}

// contexts returns firstCtx, its doubles, and most, which is the last.
func contexts(most int64) []int64 {
	var all []int64
	for n := int64(firstCtx); n < most; n *= 2 {
		all = append(all, n)
	}
	return append(all, most)
}

// ownMemory returns the resident bytes of the process, without garbage.
func ownMemory() int64 {
	debug.FreeOSMemory()
	if now, _ := exec.Resident(); now > 0 {
		return now
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}

func (r *memoryReport) add(p *plan.Plan, program int64) {
	n, t := plan.MemoryUseOf(p), &p.Target
	row := memoryRow{
		Precision: t.Precision, KV: t.KV, Ctx: t.Ctx,
		Weights: n.Weights, Packed: n.Packed, State: n.State, Arena: n.Arena, IO: n.IO, Values: min(p.PeakValueBytes(), n.Arena),
		Program: program, Total: n.Total() + program,
	}
	row.Scratch = row.Arena - row.Values
	if r.RAM.Total > 0 {
		fits := r.RAM.Holds(row.Total)
		row.Fits = &fits
	}
	r.Ubatch, r.Sequences, r.Threads = max(r.Ubatch, t.Ubatch), t.Sequences, t.Threads
	r.Plans = append(r.Plans, row)
}

// ramText returns a text with the machine's memory.
func ramText(ram exec.RAM) string {
	if ram.Total == 0 {
		return "unknown, since the system does not report it"
	}
	return fmt.Sprintf("%s, of which %s are available", plan.HumanBytes(ram.Total), plan.HumanBytes(ram.Available))
}

func (r *memoryReport) print(w io.Writer) error {
	h := plan.HumanBytes
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "model\t%s\n", oneLine(r.File))
	fmt.Fprintf(t, "memory\t%s\n", ramText(r.RAM))
	fmt.Fprintf(t, "bounds\tubatch %d, sequences %d, threads %d\n", r.Ubatch, r.Sequences, r.Threads)
	t.Flush()
	fmt.Fprintf(t, "\nprecision\tKV\tctx\tweights\tpacked\tKV cache\tvalues\tscratch\tio\tprocess\ttotal\tfits\n")
	for i := range r.Plans {
		p, fits := &r.Plans[i], "unknown"
		if p.Fits != nil {
			fits = map[bool]string{true: "yes", false: "no"}[*p.Fits]
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Precision, p.KV, p.Ctx,
			h(p.Weights), h(p.Packed), h(p.State), h(p.Values), h(p.Scratch), h(p.IO), h(p.Program), h(p.Total), fits)
	}
	return t.Flush()
}
