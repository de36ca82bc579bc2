package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Signature is the contract of lowering and execution for one kernel: its operands, their formats
// and extents, its parameters, and how workers may split it. The verifier checks every step against
// its signature, so that no plan can access memory outside its buffers.
type Signature struct {
	Name     string
	Operands []Operand
	Params   []ParamSpec
	Rows     string   // the only Step.Rows that is allowed, "" for either
	Splits   []string // allowed values of Split.By
	Scratch  string   // bytes per worker as a formula, "" for none
	Tiles    string   // Scratch for steps whose operand x is bf16, "" if it is the same
	Rounds   string   // the format that the kernel itself may round x to in precision fast, "" for none
	Rules    []Rule   // conditions on several parameters
	cost     costModel
}

// An Operand is one role in a kernel's signature.
type Operand struct {
	Role     string
	Dir      Dir
	Formats  []string  // accepted element formats; for weights GGML names, empty for any
	Input    string    // the required io buffer, if the kernel computes addresses from its values: inputs are range-checked
	Extent   string    // elements, as a formula over M (rows of this step), T, R, S, C, P (pages per sequence) and the parameters; for weights the row-major shape
	Width    string    // of a state: elements of a position's row, as a formula
	Heads    string    // of a state whose pages are grouped by head: the number of heads, as a formula
	Table    TableKind // of a table: its contents
	Kept     string    // the required io buffer, with the values of the run before
	Optional bool
	When     string // of an optional operand: it is present if and only if this parameter is not 0
	Alias    string // of an output: it may share its buffer with this input (with Repeat: the first one)
	Repeat   bool   // role is a prefix: a matmul group's "w", "bias", "out" occur as w0, w1, w2
	Matmul   bool   // a weight whose argument names a matmul kernel
	Layout   string // of a weight, the layout that it must have, "" for any
	Gather   bool   // the kernel reads only the rows of the weight that tokens name
	Far      bool   // may be on another device than the step
}

// A Dir is the direction of an operand: read, written or both, or a weight.
type Dir uint8

// The directions.
const (
	In Dir = iota
	Out
	InOut // a state that is read and written
	WeightIn
)

// Reads reports whether the kernel reads the operand from a buffer.
func (d Dir) Reads() bool { return d == In || d == InOut }

// Writes reports whether the kernel writes the operand.
func (d Dir) Writes() bool { return d == Out || d == InOut }

// A ParamSpec names a parameter and its kind by example (int64(0), 0.0, "").
type ParamSpec struct {
	Name   string
	Kind   any
	Min    int64      // the least value of an integer
	Range  [2]float64 // the least and the greatest value of a number
	Words  []string   // the values a string may have
	Repeat bool       // occurs as n0, n1, n2: once for each repeated operand
	// Default is the value for steps that omit the parameter; nil if they must not. A parameter
	// that is added to a kernel needs a default, so that older plans stay readable without a new
	// format number. A step must omit a parameter that has its default value.
	Default any
}

// Param returns a parameter of a step, or its default if the step omits it; nil if the kernel has
// no parameter of that name.
func (st *Step) Param(name string) any {
	for i := range st.Params {
		if st.Params[i].Name == name {
			return st.Params[i].Value
		}
	}
	if sig, ok := LookupKernel(st.Kernel); ok {
		for i := range sig.Params {
			if sig.Params[i].Name == name {
				return sig.Params[i].Default
			}
		}
	}
	return nil
}

// allParams returns the parameters of a step, including the defaults of omitted ones.
func allParams(st *Step) []Param {
	list := st.Params
	if sig, ok := LookupKernel(st.Kernel); ok {
		for i := range sig.Params {
			spec := &sig.Params[i]
			if spec.Default != nil && !slices.ContainsFunc(st.Params, func(p Param) bool { return p.Name == spec.Name }) {
				list = append(slices.Clip(list), Param{spec.Name, spec.Default})
			}
		}
	}
	return list
}

// GroupMax is the largest number of products of a matmul group.
const GroupMax = 3

// repeats returns the maximum number of occurrences of a role or parameter.
func repeats(repeat bool) int {
	if repeat {
		return GroupMax
	}
	return 1
}

func indexed(name string, repeat bool, i int) string {
	if repeat {
		return name + strconv.Itoa(i)
	}
	return name
}

// LookupKernel returns the signature of a kernel.
func LookupKernel(name string) (*Signature, bool) {
	for i := range kernels {
		if kernels[i].Name == name {
			return &kernels[i], true
		}
	}
	return nil, false
}

// matmulKernels are the kinds of matmul kernels: few tokens, many tokens.
var matmulKernels = []string{"gemv", "gemm"}

// MatmulName returns the name of a matmul kernel of a kind for weights of a type, in a layout if
// it is not "", and activations of a format: "gemv.q5_0.q8x2", "gemm.q5_0.panel16.q8x2".
func MatmulName(kind, weight, layout, activations string) string {
	if layout != "" {
		weight += "." + layout
	}
	return kind + "." + weight + "." + activations
}

// A MatmulKernel holds the parts of a matmul kernel's name.
type MatmulKernel struct{ Kind, Weight, Layout, Activations string }

// ParseMatmul splits a name that MatmulName made, and reports whether it is one.
func ParseMatmul(name string) (MatmulKernel, bool) {
	switch p := strings.Split(name, "."); len(p) {
	case 3:
		return MatmulKernel{p[0], p[1], "", p[2]}, true
	case 4:
		return MatmulKernel{p[0], p[1], p[2], p[3]}, true
	}
	return MatmulKernel{}, false
}

// count returns an integer parameter of at least 1.
func count(name string) ParamSpec { return ParamSpec{Name: name, Kind: int64(0), Min: 1} }

// counts returns a count that occurs once for each repeated operand.
func counts(name string) ParamSpec {
	return ParamSpec{Name: name, Kind: int64(0), Min: 1, Repeat: true}
}

// amount returns an integer parameter of at least 0.
func amount(name string) ParamSpec { return ParamSpec{Name: name, Kind: int64(0)} }

// number returns a float64 parameter in a range.
func number(name string, least, greatest float64) ParamSpec {
	return ParamSpec{Name: name, Kind: 0.0, Range: [2]float64{least, greatest}}
}

// factor returns a parameter that float32 values are multiplied by.
func factor(name string) ParamSpec { return number(name, -math.MaxFloat32, math.MaxFloat32) }

// word returns a parameter that is one of the words.
func word(name string, words ...string) ParamSpec {
	return ParamSpec{Name: name, Kind: "", Words: words}
}

// Optional returns the parameter with a default, so that steps may omit it. The default has the type of
// Kind: Optional(int64(1)) for an integer, Optional(1.0) for a number, Optional("pairs") for a word.
func (p ParamSpec) Optional(value any) ParamSpec { p.Default = value; return p }

// ScratchOf returns the formula for the bytes of scratch per worker, given the format of operand x.
func (sig *Signature) ScratchOf(x string) string {
	if x == "bf16" {
		return cmp.Or(sig.Tiles, sig.Scratch)
	}
	return sig.Scratch
}

// Operand returns the operand of a step's role ("w" for role "w1" if w is repeated), nil if there
// is none.
func (sig *Signature) Operand(role string) *Operand {
	o, _ := sig.operand(role)
	return o
}

// Elems returns the number of elements of a buffer operand, by role, in scope s.
func (sig *Signature) Elems(s Scope, role string) (int64, error) {
	o, index := sig.operand(role)
	if o == nil {
		return 0, fmt.Errorf("kernel %s has no operand %q", sig.Name, role)
	}
	s.Index = index
	return s.Eval(o.Extent)
}

// operand returns the operand of a step's role, and its repeat index.
func (sig *Signature) operand(role string) (o *Operand, index int) {
	for i := range sig.Operands {
		o := &sig.Operands[i]
		for j := range repeats(o.Repeat) {
			if role == indexed(o.Role, o.Repeat, j) {
				return o, j
			}
		}
	}
	return nil, 0
}

func (sig *Signature) writesOnly(role string) bool {
	o, _ := sig.operand(role)
	return o != nil && o.Dir == Out
}
