// Package graph is the intermediate representation: a dataflow graph of named, typed values.
//
// It contains graphs, nodes, values, types and symbols, their verifier, their text form (which
// round-trips) and structural equality. It has no concrete operations: package ops supplies them as
// rows of type Op. Its only import of this module is gguf/quant, for the element types of weights.
//
// # The text form
//
// Print writes it, Parse reads it. Each line defines something; a comment runs from # to the end of its
// line. In this grammar, [ ] is optional, { } repeats any number of times, | separates choices, and text in
// quotes is literal:
//
//	graph   = "graph" name "(" [ bound { "," bound } ] ")" line { ( weight | node | outputs ) line }
//	bound   = symbol "<=" integer
//	weight  = "@" name ":" type [ "=" part ]
//	node    = result { "," result } ":" type { "," type } "=" op
//	          [ operand { "," operand } ] [ "{" attr { "," attr } "}" ] [ "on" device ]
//	outputs = "output" operand { "," operand }
//	result  = "%" name
//	operand = "%" name | "@" name | "_"
//	attr    = name ":" ( integer | number | string | "true" | "false" )
//	type    = element "[" [ dim { "," dim } ] "]"
//	dim     = integer | symbol
//	part    = ( "rows" | "columns" ) "of" name "[" [ dim { "," dim } ] "]" "from" integer
//	symbol  = "T" | "S" | "R" | "C"
//
// A name is a string in double quotes, as in Go, or a word: letters, digits and _ . - + /. An op is a name of
// package ops, an element a DType, a device an integer (0 if it is left out), and a line the end of a line or of the
// text.
// An operand @name is a weight, %name a result of a node above, and _ an absent operand, which an output
// cannot be. A node has a type for each result. The attribute 1 is an integer, 1.0 a floating-point number.
// A part is a range of a tensor's rows or columns that begins at
// the integer; the weight's type gives its length. The example of Parse has a graph.
package graph

import "fmt"

// A DType names the element type of a value. Activations are F32, I32, Q8x2, Q8 or BF16; a cache is
// KV, whose format the lowering chooses; weights carry the lower-case name of their GGML type
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

// A Sym is a symbolic extent. The compiler gets its upper bound.
type Sym string

// The symbols. Const marks a Dim that is a plain number.
const (
	Const Sym = ""
	T     Sym = "T" // tokens in this step, at most ubatch
	S     Sym = "S" // sequences
	R     Sym = "R" // rows of logits, 0 ≤ R ≤ T
	C     Sym = "C" // cached positions of a sequence, at most the context
)

// A Dim is one extent of a shape: the number N if Sym is Const, else the symbol (and N is 0).
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

// A Type is an element type and a shape in row-major order: the last extent is contiguous. A weight
// of n rows of length k is [n, k] (GGUF stores the extents in reverse order).
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
	Index int   // index among Def's results
	Part  *Part // of a weight that is a part of a tensor, else nil
}

// IsWeight reports whether v comes from the model file.
func (v *Value) IsWeight() bool { return v.Def == nil }

// A Node applies Op to In and yields Out. In has one entry per operand of the op; an absent
// optional operand is nil. The results are on the node's device.
type Node struct {
	Op     *Op
	In     []*Value
	Out    []*Value
	Attr   Attrs
	Device int // index of the device, 0 if there is only one
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
	Outputs []*Value // passes must keep these
}

// An Op describes one operation. Package ops holds the table.
type Op struct {
	Name  string
	In    []Operand
	Out   int // number of results
	Attrs []AttrSpec
	// Infer returns the types of the results, or an error that names the wrong operand or
	// attribute.
	Infer func(n *Node) ([]Type, error)
	// Alias lists pairs (result, operand): the result may take the operand's memory if this is the
	// operand's last use.
	Alias [][2]int
	// Writes lists pairs (result, operand): the result is the operand's state after a write. A
	// state is written at most once, and its old name is not read afterwards.
	Writes [][2]int
	// Crosses: operands may be on another device than the node. Everywhere: the results are on all
	// devices.
	Crosses, Everywhere bool
	// RowWise: of the operands whose first extent is T or R, row m of every result depends only on
	// row m.
	RowWise bool
}

// An Operand is one place in an op's operand list.
type Operand struct {
	Name     string
	Optional bool
}

// An AttrSpec specifies an attribute: its name, its default, and whether it is required. The
// default also gives its kind (int64, float64, string or bool); for a required attribute it has no
// other use.
type AttrSpec struct {
	Name     string
	Default  any
	Required bool
}
