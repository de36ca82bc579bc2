// Package plan is the execution plan as data. Package lower writes plans and package exec runs
// them.
//
// It defines the plan's structure, its text form (print, parse, seal), its JSON, its verifier, the
// element formats of buffers, the table of kernel signatures that package lower and package exec
// agree on, how workers share a step, and what a step costs each worker. It is a leaf: it imports
// nothing of this module.
package plan

// Version is the plan format that this package writes and reads.
const Version = 2

// PageTokens is the number of positions in one page of a KV cache.
const PageTokens = 16

// A Plan is for one model, one target and one set of bounds.
type Plan struct {
	Version  int
	Model    Model
	Sidecar  Sidecar
	Target   Target
	Devices  []Device // of a plan for several devices; empty for one, which Target and Memory describe
	Passes   string   // the --passes list it was made with, "" for all
	Memory   Memory
	Weights  []Weight
	Buffers  []Buffer // states and io, shared by all programs; Buffers[i].ID == i
	Programs []Program
	Fusions  Fusions
}

// A Model identifies the GGUF file of a plan.
type Model struct {
	Arch          string
	Name          string
	File          string // absolute, or relative to the folder of the plan's file; "" for the embedded model
	Size          int64  // bytes, all shards
	HeaderDigest  string // "sha256:…" of header, metadata and tensor directory
	WeightsDigest string // "sha256:…" of the tensor data, "samples-sha256:…" of samples of it, "" if not computed
}

// SidecarType is the type of the weights in a sidecar file.
const SidecarType = "f8_e4m3"

// A Sidecar identifies the file that holds a plan's weights of SidecarType. Its size is 0 if the
// plan has no sidecar.
type Sidecar struct {
	File          string // absolute, or relative to the folder of the plan's file
	Size          int64  // bytes
	HeaderDigest  string // "sha256:…" of what stands before the data
	WeightsDigest string // "sha256:…" of the data, "" if not computed
}

// A Target is the machine that a plan is for, with the bounds of its runs.
type Target struct {
	Backend   string // "cpu" or CUDA
	ISA       string // "portable", or on CUDA devices the least compute capability: "sm_75"
	Precision string // "exact", "fast"
	KV        string // one of CacheFormats
	Threads   int    // at most: workers on the CPU, 1 on a CUDA device
	Ctx       int64  // positions per sequence
	Ubatch    int64  // tokens per step
	Sequences int64
	Rows      int64 // logits rows per step
}

// Memory sums bytes by class, of all devices together.
type Memory struct {
	Weight, Packed, State, Tables, IO, Arena, ArenaLowerBound, ArenaUnshared int64
}

// A memoryField is one of the sums.
type memoryField struct {
	name  string
	bytes *int64
}

func (m *Memory) fields() []memoryField {
	return []memoryField{
		{"weight", &m.Weight}, {"packed", &m.Packed}, {"state", &m.State}, {"tables", &m.Tables}, {"io", &m.IO},
		{"arena", &m.Arena}, {"arena_lower_bound", &m.ArenaLowerBound}, {"arena_unshared", &m.ArenaUnshared},
	}
}

// of returns the sum that includes shared buffers of a class.
func (m *Memory) of(c Class) *int64 {
	switch c {
	case State:
		return &m.State
	case Table:
		return &m.Tables
	}
	return &m.IO
}

// A Weight is a tensor of the model file or of the sidecar that some step reads, or a part of one.
type Weight struct {
	Name string
	Type string  // lower-case GGML name: "q5_0", or SidecarType
	Dims []int64 // row-major: [rows, row length], or [length]
	Size int64   // bytes in its file
	Part Part    // set if the weight is a part of a tensor

	// Products and row gathers read a packed copy if the weight has a layout. The executor makes it
	// when it loads the plan.
	Layout string // a name of Layouts, "" if products read the file
	Packed int64  // bytes of the copy

	Devices []int // that have the weight, ascending; empty for device 0 alone
}

// A Class is the kind of memory of a buffer.
type Class string

// The memory classes of buffers.
const (
	State Class = "state" // KV pages, kept between steps
	Table Class = "table" // read-only or counters, one per device for all steps
	IO    Class = "io"    // filled or read by the caller
	Arena Class = "arena" // planned, dead between runs
)

// A Buffer is a named range of memory. Arena buffers belong to a program and have an offset in the
// arena. An Each buffer has one copy per worker, Stride bytes apart.
type Buffer struct {
	ID     int
	Class  Class
	Name   string // the value it holds: "blk.0.q"
	Format string // "f32", "i32", "f16", "q8x2", "q8", "bf16"
	Elems  string // extent as a formula over T, R, S and constants: "T*896"
	Offset int64  // bytes into the arena; 0 for other classes, which are allocated separately
	Size   int64  // bytes, all copies together
	Each   bool   // one copy per worker
	Stride int64  // bytes between the copies of an Each buffer
	First  int    // first step that touches it (arena only)
	Last   int    // one past the last step that touches it
	Device int    // that holds it; 0 for inputs, which all devices hold
}

// A Program is the schedule for runs of MinT to MaxT tokens and up to MaxR rows of logits.
//
// The programs without a Chunk cover runs of any number of tokens up to ubatch. A program with a
// Chunk rounds differently. It runs instead of them if every sequence of a run has whole chunks of
// tokens: a multiple of Chunk tokens, from a position that is a multiple of Chunk. So the program
// that computes a token does not depend on chance, such as the other sequences in the run.
type Program struct {
	Name       string // "decode", "small", "prefill", "tiles"
	Chunk      int64  // tokens, 0 for none
	MinT, MaxT int64
	MaxR       int64
	Buffers    []Buffer // arena buffers; IDs continue after the plan's own
	Waves      []Wave
}

// A Wave is a list of steps between two barriers. Every worker executes the list in order.
type Wave struct {
	Steps []Step
}

// A Step is one kernel call, shared among the workers as Split says.
type Step struct {
	ID     int    // dense within the program, in execution order
	Name   string // the value it computes: "blk.0.qkv"
	Layer  int    // block number, −1 outside
	Kernel string // a row of the signature table
	Rows   string // "T" or "R": how many rows it works on
	Args   []Arg  // in the signature's order, without absent optional operands
	Params []Param
	Split  Split
	// Scratch is a workspace in the arena. Each worker has Size/threads bytes of it.
	Scratch int // buffer ID (an Each buffer), −1 for none
	Device  int // that runs it
}

// An Arg binds a role of the signature to a buffer or a weight.
type Arg struct {
	Role   string
	Buffer int    // −1 for a weight
	Weight string // tensor name
	Kernel string // for the weights of a matmul group: "gemv.q5_0.q8x2"
}

// A Param is a named constant of a step: int64, float64 or string.
type Param struct {
	Name  string
	Value any
}

// A Split describes how workers share a step.
type Split struct {
	By   string // "rows" (of the weights), "heads", "tokens", "each" (every worker all of it), "one" (worker 0)
	Unit int64  // smallest share
}

// Fusions counts the fused groups of a plan's largest program.
type Fusions struct {
	QKV, GatedMLP, Attention int
}

// Numbers that mean no layer and no buffer.
const (
	noLayer  = -1
	noBuffer = -1
)
