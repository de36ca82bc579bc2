// Package graph is the intermediate representation: a dataflow graph of named, typed values.
//
// It owns graphs, nodes, values, types and symbols, their verifier, their text form (which
// round-trips) and structural equality. It knows no concrete operation: an Op is a row that
// package ops supplies. It imports gguf/quant for the element types of weights, and nothing
// else of this module.
package graph

import "fmt"

// A DType names the element type of a value. Activations are F32, I32, Q8x2, Q8 or BF16; a cache is KV,
// whose storage the lowering chooses; weights carry the lower-case name of their GGML type
// ("q5_0", "f16", …).
type DType string

// Element types that are not GGML types.
const (
	F32  DType = "f32"
	I32  DType = "i32"
	KV   DType = "kv"   // state: one row per cached position
	Q8x2 DType = "q8x2" // activations in two int8 planes, see exec/plan's format table
	Q8   DType = "q8"   // activations in one int8 plane, likewise
)

// BF16 is the element type of activations for products in tiles, and of weights.
const BF16 DType = "bf16"

// F8E4M3 is the element type of weights in FP8, whose rows have scales.
const F8E4M3 DType = "f8_e4m3"

// A Sym is a symbolic extent whose upper bound is given to the compiler.
type Sym string

// The symbols. Const marks a Dim that is a plain number.
const (
	Const Sym = ""
	T     Sym = "T" // tokens in this step, at most ubatch
	S     Sym = "S" // sequences
	R     Sym = "R" // rows whose logits are wanted, 0 ≤ R ≤ T
	C     Sym = "C" // cached positions of a sequence, at most the context
)

// A Dim is one extent of a shape: the number N where Sym is Const, else the symbol (N is 0).
type Dim struct {
	Sym Sym
	N   int64
}

// N returns a constant extent.
func N(n int64) Dim { return Dim{N: n} }

// Of returns a symbolic extent.
func Of(s Sym) Dim { return Dim{Sym: s} }

func (d Dim) String() string {
	if d.Sym != Const {
		return string(d.Sym)
	}
	return fmt.Sprint(d.N)
}

// A Type is an element type and a shape in row-major order: the last extent is contiguous.
// A weight of n rows of length k is [n, k] (GGUF stores the extents the other way round).
type Type struct {
	DType DType
	Shape []Dim
}

// A Value is a weight (Def is nil) or one result of a node.
type Value struct {
	ID    int    // dense and deterministic: weights first, then results in node order
	Name  string // "blk.3.attn_q"; unique among weights and, separately, among results
	Type  Type
	Def   *Node // nil for a weight
	Index int   // which result of Def
	Part  *Part // of a weight, where it is not a whole tensor
}

// IsWeight reports whether v comes from the model file.
func (v *Value) IsWeight() bool { return v.Def == nil }

// A Node applies Op to In and yields Out. In has one entry per operand of the op's
// specification; an absent optional operand is nil. Its results lie on the device that computes it.
type Node struct {
	Op     *Op
	In     []*Value
	Out    []*Value
	Attr   Attrs
	Device int // number of the device, 0 where there is one
}

// Attrs are a node's attributes: int64, float64, string or bool, as the op specifies.
type Attrs map[string]any

// A Bound is a symbol and its largest value.
type Bound struct {
	Sym Sym
	Max int64
}

// A Graph is a list of nodes in execution order: every operand is defined before its use.
type Graph struct {
	Name    string  // the architecture
	Bounds  []Bound // in the order T, S, R, C
	Weights []*Value
	Nodes   []*Node
	Outputs []*Value // passes keep these
}

// An Op describes one operation. Package ops holds the table.
type Op struct {
	Name  string
	In    []Operand
	Out   int // number of results
	Attrs []AttrSpec
	// Infer gives the types of the results, or says which operand or attribute is wrong.
	Infer func(n *Node) ([]Type, error)
	// Alias lists pairs (result, operand): the result may take the operand's place in memory
	// where the operand dies.
	Alias [][2]int
	// Writes lists pairs (result, operand): the result is the operand's state after a write.
	// A state is written at most once, and not read afterwards under its old name.
	Writes [][2]int
	// Crosses says that operands may lie on another device than the node, and Everywhere that
	// the results lie on all devices.
	Crosses, Everywhere bool
	// RowWise says that row m of every result depends on no row but m of the operands whose
	// first extent is T or R.
	RowWise bool
}

// An Operand is one place in an op's operand list.
type Operand struct {
	Name     string
	Optional bool
}

// An AttrSpec is the row of an attribute: its name, its default, of which the kind is its own (an int64, a
// float64, a string or a bool), and whether it must be present, in which case the default is but an example.
type AttrSpec struct {
	Name     string
	Default  any
	Required bool
}
