// Package target defines how a target describes itself to lowering: a struct of tables and
// functions, one for each backend.
//
// It contains the types of these tables, and the computation of kernel parameters, which all
// targets share. It imports graph, ops and exec/plan, and no target.
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

// A Target describes one backend to lowering.
type Target struct {
	Name    string
	ISAs    []string // supported instruction sets; the first is the least capable
	Caches  []string // formats of caches
	Threads int      // most workers; 0 is any number
	Serial  bool     // steps run one after another, so each is a wave
	Tiles   int64    // tokens in a chunk of the program that --tiles adds; 0 if the target has none

	Programs func(Bounds) []Program
	// ActivationFormats are the formats in which products can read activations, best first. The
	// last one does not round.
	ActivationFormats []ActivationFormat
	// Integers are the choices between integer formats. A compilation uses one of them.
	Integers []Rounding
	// DefaultRounding returns the name of the default choice on an instruction set.
	DefaultRounding func(isa string) string
	// Layout returns the layout in which products on an instruction set read weights of a type, ""
	// for the file's.
	Layout func(isa string, t graph.DType, activations string) string

	Kernels   []Lowering                                    // ops with a kernel of the target
	Reference []Lowering                                    // fallback of each basic op
	Fits      func(l *Lowering, n *graph.Node) (why string) // why a row of Kernels does not fit a node although its signature does; "" if it fits
	Copy      string                                        // kernel that copies rows
	Top       string                                        // the kernel that finds the greatest elements of rows, "" for none
}

// Bounds are the bounds of a plan's programs.
type Bounds struct {
	Ubatch, Sequences int64
	Tiles             bool // add a program for chunks of tokens
}

// Distinct leaves out each program that takes no more tokens than the one before it.
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
	Chunk     int64  // tokens in a chunk, for products in tiles; 0 if the program takes any number
	Matmul    string // family of matmul kernels: gemv streams weights, gemm works on blocks of tokens
	// Each is the largest number of rows for which every worker computes norms and quantizations
	// whole, into its own copy, which saves a barrier. For more rows, workers split them by tokens.
	Each int64
	// Kernels replace the target's rows of the same ops.
	Kernels []Lowering
	// FloatGates is set if no kernel rounds the result of a gated MLP in the same step, so that it
	// stays float32.
	FloatGates bool
	// AllRows is set if the program outputs the logits of nearly all tokens, so that dropping rows
	// early does not pay.
	AllRows bool
	// Prologue is set if products norm and round x themselves, without a step before them.
	Prologue bool
}

// An ActivationFormat is a format in which products read their activations.
type ActivationFormat struct {
	Format   string
	Rounds   bool                                    // rounds, so precision exact excludes it
	Integers bool                                    // is an integer format; a Rounding chooses among these
	For      func(p *Program, n *graph.Node) bool    // whether a node uses it; nil means all nodes
	WhyNot   func(isa string, w *graph.Value) string // why there is no kernel for a weight, "" if there is one
}

// A Rounding chooses the format of integers that a product's activations are rounded to.
type Rounding struct {
	Name   string
	Format func(n *graph.Node, logits bool) string // format for a product; logits marks the last product before the logits
}

// Always returns the Rounding that always chooses one format.
func Always(format string) Rounding {
	return Rounding{format, func(*graph.Node, bool) string { return format }}
}

// A Lowering maps an op to a kernel, and the op's operands to the kernel's roles. An operand with
// role "" is not passed: a state that is written in place, or a value that the kernel gets
// otherwise.
type Lowering struct {
	Op     *graph.Op
	Kernel string
	In     []string
	Out    []string
	Split  plan.Split
	Small  bool             // cheap enough for every worker to compute whole, see Program.Each
	Params map[string]Value // parameters that this kernel computes differently, see Parameters
	// Matmuls names the weights that take a matmul kernel from the node's attribute "kernels".
	Matmuls []string
}

// An Env holds the data that parameters need apart from the node: the storage of states.
type Env struct {
	Positions func(state *graph.Value) (positions int64, ring bool)
}

// SwitchedOff is the reason of fallbacks if reference kernels are requested.
const SwitchedOff = "choose_kernels is switched off"

// Lower returns the Lowering of a node in a program: to the target's own kernel if one fits and
// reference is false, else to a ref.* kernel, else nil. why is the reason if it is not the target's
// own kernel.
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

// transfer copies a value to another device, between any two targets.
var transfer = Lowering{Op: ops.Transfer, Kernel: "transfer", In: []string{"x"}, Out: []string{"y"}, Split: plan.Split{By: "one", Unit: 1}}

// Lowers reports whether a node has a Lowering, and if not, why. Such a node has to be expanded
// first.
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

// RoundingNames lists the names of the target's Roundings.
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

// RowsOf returns the symbol that counts a node's rows.
func RowsOf(n *graph.Node) graph.Sym {
	for _, v := range n.Out {
		if sym := v.Type.Shape[0].Sym; sym == graph.T || sym == graph.R {
			return sym
		}
	}
	return graph.T // a write of T rows into a state
}
