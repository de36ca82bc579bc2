// Package plan is the execution plan as data: what a compiler wrote and an executor runs.
//
// It owns the plan's structure, its text form (print, parse, seal), its JSON, its verifier, the
// formats of elements in memory, the table of kernel signatures through which package lower and
// package exec agree, how workers share a step, and what a step costs each of them. It is a leaf: it
// imports nothing of this module.
package plan

// Version is the newest format that this package reads and the one it writes.
const Version = 1

// PageTokens is the number of positions in one page of a KV cache.
const PageTokens = 16

// A Plan is for one model, one target and one set of bounds.
type Plan struct {
	Version  int
	Model    Model
	Sidecar  Sidecar
	Target   Target
	Devices  []Device // of a plan for several; empty where there is one, of which Target and Memory tell
	Passes   string   // the --passes list it was made with, "" for all
	Memory   Memory
	Weights  []Weight
	Buffers  []Buffer // states and io, shared by all programs; Buffers[i].ID == i
	Programs []Program
	Fusions  Fusions
}

// A Model is the identity of the GGUF file a plan belongs to.
type Model struct {
	Arch          string
	Name          string
	File          string // relative to the plan file; "" when embedded ("demo")
	Size          int64  // bytes, all shards
	HeaderDigest  string // "sha256:…" of header, metadata and tensor directory
	WeightsDigest string // "sha256:…" of the tensor data, "samples-sha256:…" of parts of it, "" when not computed
}

// SidecarType is the type of the weights that lie in another file than the model.
const SidecarType = "f8_e4m3"

// A Sidecar is the identity of the file with the weights of that type. Its size is 0 where a plan reads
// none.
type Sidecar struct {
	File          string // relative to the plan file
	Size          int64  // bytes
	HeaderDigest  string // "sha256:…" of what stands before the data
	WeightsDigest string // "sha256:…" of the data, "" when not computed
}

// A Target is where and within which bounds a plan runs.
type Target struct {
	Backend   string // "cpu" or CUDA
	ISA       string // "portable", or on CUDA devices the least compute capability: "sm_75"
	Precision string // "exact", "fast"
	KV        string // one of CacheFormats
	Threads   int    // at most
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

// of returns the sum that shared buffers of a class count for.
func (m *Memory) of(c Class) *int64 {
	switch c {
	case State:
		return &m.State
	case Table:
		return &m.Tables
	}
	return &m.IO
}

// A Weight is a tensor of the model file, or of the one beside it, that some step reads.
type Weight struct {
	Name string
	Type string  // lower-case GGML name: "q5_0", or SidecarType
	Dims []int64 // row-major: [rows, row length], or [length]
	Size int64   // bytes in its file
	Part Part    // of another tensor, zero where it is a whole one

	// Products and what gathers rows may read a copy in another layout, made when the plan is loaded.
	Layout string // a name of Layouts, "" where products read the file
	Packed int64  // bytes of the copy

	Devices []int // that have it, ascending; empty for the first alone
}

// A Class says where a buffer lives.
type Class string

// The memory classes of buffers.
const (
	State Class = "state" // KV pages, kept between steps
	Table Class = "table" // what a device has once for all steps: sines of angles, counters
	IO    Class = "io"    // filled or read by the caller
	Arena Class = "arena" // planned, dead between runs
)

// A Buffer is a named range of memory. Arena buffers belong to a program and have an offset in
// the arena; an Each buffer is repeated for every worker at Stride.
type Buffer struct {
	ID     int
	Class  Class
	Name   string // the value it holds: "blk.0.q"
	Format string // "f32", "i32", "f16", "q8x2", "q8", "bf16"
	Elems  string // extent as a formula over T, R, S and constants: "T*896"
	Offset int64  // bytes into the arena (0 for others, which are allocated one by one)
	Size   int64  // bytes, all copies together
	Each   bool   // one copy per worker
	Stride int64  // bytes between copies where Each
	First  int    // first step that touches it (arena only)
	Last   int    // one past the last step that touches it
	Device int    // where it lies; inputs lie on all devices, and say 0
}

// A Program is the schedule for steps of up to MaxT tokens and MaxR rows of logits.
//
// Those without a Chunk together are for steps of any number of tokens. One with a Chunk rounds
// otherwise and runs instead of them where the tokens of every sequence in a step are whole chunks
// of its positions: so many, from a multiple of that many on. Which of the two computes a token is
// then no matter of chance, such as what else is in the step.
type Program struct {
	Name       string // "decode", "small", "prefill", "tiles"
	Chunk      int64  // tokens, 0 for none
	MinT, MaxT int64
	MaxR       int64
	Buffers    []Buffer // arena buffers; IDs continue after the plan's own
	Waves      []Wave
}

// A Wave is a list of steps between two barriers. Every worker walks the list in order.
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
	Args   []Arg  // in the signature's order; absent optional ones are left out
	Params []Param
	Split  Split
	// Scratch is a range of the arena for each worker, of which Size/threads bytes are its own.
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

// A Split says how workers share a step.
type Split struct {
	By   string // "rows" (of the weights), "heads", "tokens", "each" (every worker all of it), "one" (worker 0)
	Unit int64  // smallest share
}

// Fusions counts the fused groups of a plan's largest program.
type Fusions struct {
	QKV, GatedMLP, Attention int
}

// What stands for a layer or a buffer that is not there.
const (
	noLayer  = -1
	noBuffer = -1
)
