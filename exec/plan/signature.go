package plan

// A Signature is what lowering and execution agree on for one kernel: its operands, their
// formats and extents, its parameters, and how its work may be split. The verifier holds every
// step against it, so that no plan, however made, can touch memory outside its buffers.
type Signature struct {
	Name     string
	Operands []Operand
	Params   []ParamSpec
	Splits   []string // allowed values of Split.By
	Scratch  string   // bytes per worker as a formula, "" for none
}

// An Operand is one role of a kernel.
type Operand struct {
	Role     string
	Dir      Dir
	Formats  []string // element formats it accepts; for weights the GGML names, empty for any that the named matmul kernel takes
	Extent   string   // elements, as a formula over M (rows of this step), T, R, S, C, P (pages per sequence) and the parameters
	Optional bool
	Alias    string // an output may share its buffer with this input
	Repeat   bool   // role is a prefix: a matmul group's "w", "bias", "out" occur as w0, w1, w2
}

// Dir says whether an operand is read, written or both, and whether it is a weight.
type Dir uint8

// The directions.
const (
	In Dir = iota
	Out
	InOut // state that is read and written
	WeightIn
)

// A ParamSpec names a parameter and its kind by example (int64(0), 0.0, "").
type ParamSpec struct {
	Name string
	Kind any
}
