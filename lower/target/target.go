// Package target holds what a target tells lowering: a row of tables and functions, of which package
// lower has one for each backend that it compiles for.
//
// It owns the form of these tables and the parameters of kernels, which are the same for all
// targets. It imports graph, ops and exec/plan, and knows no target.
package target

import (
	"cmp"
	"fmt"
	"slices"

	"pesti/exec/plan"
	"pesti/graph"
	"pesti/ops"
)

// Activation formats of matmul kernels.
const (
	F32  = "f32"  // exact: weights dequantized, products in float32
	Q8x2 = "q8x2" // fast: integer products with activations in two int8 planes
	Q8   = "q8"   // fast: the same with one plane, in less time and with larger errors
	BF16 = "bf16" // fast: products in tiles, for whole chunks of tokens
)

// A Target is what one backend offers to lowering.
type Target struct {
	Name    string
	ISAs    []string // that plans may be for; the first is the least
	Caches  []string // formats of caches
	Threads int      // most workers; 0 is any number
	Serial  bool     // steps run one after the other, so that each is a wave
	Tiles   int64    // tokens of a chunk, of which a program can be asked for with --tiles; 0 where there is none to ask for

	Programs func(Bounds) []Program
	// Ways are how products may read their activations, the best first. The last one rounds nothing.
	ActivationFormats []ActivationFormat
	// Integers are the ways to choose among their formats of integers, of which a compilation takes one.
	Integers []Rounding
	// DefaultRounding names the one that is taken on an instruction set where none is asked for.
	DefaultRounding func(isa string) string
	// Layout is the layout in which products on an instruction set read weights of a type, "" for
	// that of the file.
	Layout func(isa string, t graph.DType, activations string) string

	Kernels   []Lowering                                    // of ops that have a kernel of their own
	Reference []Lowering                                    // what runs where none fits, for each basic op
	Fits      func(l *Lowering, n *graph.Node) (why string) // why a row of Kernels is not for a node, beyond what its signature says; "" where it is
	Copy      string                                        // the kernel that copies rows
	Top       string                                        // the kernel that finds the greatest elements of rows, "" for none
}

// Bounds are what programs are made for.
type Bounds struct {
	Ubatch, Sequences int64
	Tiles             bool // whether there is to be a program for chunks of tokens
}

// Distinct leaves out each program that would hold no more tokens than the one before it.
func Distinct(all ...Program) []Program {
	var list []Program
	for _, p := range all {
		if len(list) == 0 || p.MaxTokens > list[len(list)-1].MaxTokens {
			list = append(list, p)
		}
	}
	return list
}

// A Program is a schedule template.
type Program struct {
	Name      string
	MaxTokens int64
	Chunk     int64  // tokens that it takes at a time, of products in tiles; 0 for any number
	Matmul    string // family of matmul kernels: gemv streams weights, gemm works on blocks of tokens
	// Each is the largest number of rows for which a norm or a quantisation is computed whole by
	// every worker, into memory of its own, which saves a barrier. For more rows the work is
	// split by tokens.
	Each int64
	// Kernels stand in for the target's rows of the same ops.
	Kernels []Lowering
	// FloatGates is set where gated products give float32 and no kernel rounds that in the same step.
	FloatGates bool
	// AllRows is set where the logits of nearly all tokens are wanted, so that it does not pay to drop
	// the others early.
	AllRows bool
	// Prologue has products norm and round what they read by themselves, with no step in front.
	Prologue bool
}

// An ActivationFormat is a format in which products read their activations.
type ActivationFormat struct {
	Format   string
	Rounds   bool                                    // so that it is not for precision exact
	Integers bool                                    // the choice among these is a Rounding's
	For      func(p *Program, n *graph.Node) bool    // where it is wanted; nil is everywhere
	WhyNot   func(isa string, w *graph.Value) string // why there is no kernel for a weight, "" where there is one
}

// A Rounding chooses the format of integers that a product's activations are rounded to.
type Rounding struct {
	Name   string
	Format func(n *graph.Node, logits bool) string // of a product, which may be that of the logits
}

// Always is the rounding to one format.
func Always(format string) Rounding {
	return Rounding{format, func(*graph.Node, bool) string { return format }}
}

// A Lowering says which kernel computes an op and how operands become its arguments. A role of
// "" is not passed on: states written in place, or what the kernel knows otherwise.
type Lowering struct {
	Op     *graph.Op
	Kernel string
	In     []string
	Out    []string
	Split  plan.Split
	Small  bool             // cheap enough for every worker to compute whole, see Program.Each
	Params map[string]Value // parameters that are not what they are for other kernels, see Parameters
	// Matmuls names the weights that take a matmul kernel from the node's attribute "kernels".
	Matmuls []string
}

// An Env gives what parameters need beyond the node: the storage of the states.
type Env struct {
	Positions func(state *graph.Value) (positions int64, ring bool)
}

// SwitchedOff is the reason of fallbacks where reference kernels are wanted.
const SwitchedOff = "choose_kernels is switched off"

// Lower returns how a node of a program is computed: by a kernel of its own where reference is false and one
// fits, else by a ref.* kernel; nil where there is neither. why is the reason where it is no kernel of its own.
func (t *Target) Lower(p *Program, n *graph.Node, reference bool) (l *Lowering, why string) {
	if n.Op == ops.Transfer {
		return &transfer, ""
	}
	why = fmt.Sprintf("target %s has no kernel for it", t.Name)
	for _, table := range [][]Lowering{p.Kernels, t.Kernels} {
		l := find(table, n.Op)
		if reference {
			why = SwitchedOff
			break
		}
		if l == nil {
			continue
		}
		if why = cmp.Or(l.ignores(n), t.Fits(l, n)); why == "" {
			return l, ""
		}
	}
	l = find(t.Reference, n.Op)
	if l != nil && l.ignores(n) != "" {
		return nil, l.ignores(n)
	}
	return l, why
}

// transfer is how a value comes to another device, whichever targets theirs are.
var transfer = Lowering{Op: ops.Transfer, Kernel: "transfer", In: []string{"x"}, Out: []string{"y"}, Split: plan.Split{By: "one", Unit: 1}}

// Lowers reports whether a node is computed as it is, and why not. One that is not is to be expanded first.
func (t *Target) Lowers(p *Program, n *graph.Node) (ok bool, why string) {
	if n.Op == ops.Input || n.Op == ops.State {
		return true, ""
	}
	l, why := t.Lower(p, n, false)
	return l != nil, why
}

// find returns the row of a table for an op.
func find(table []Lowering, op *graph.Op) *Lowering {
	if i := slices.IndexFunc(table, func(l Lowering) bool { return l.Op == op }); i >= 0 {
		return &table[i]
	}
	return nil
}

// RoundingNames lists the names of the ways to choose among formats of integers.
func (t *Target) RoundingNames() []string {
	names := make([]string, len(t.Integers))
	for i, r := range t.Integers {
		names[i] = r.Name
	}
	return names
}

// Names lists the names of targets.
func Names(targets []*Target) []string {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.Name
	}
	return names
}

// RowsOf is the symbol that counts a node's rows.
func RowsOf(n *graph.Node) graph.Sym {
	for _, v := range n.Out {
		if sym := v.Type.Shape[0].Sym; sym == graph.T || sym == graph.R {
			return sym
		}
	}
	return graph.T // writes of T rows into a state
}
