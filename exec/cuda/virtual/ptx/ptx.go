// Package ptx reads PTX, the text form of CUDA kernels, into instructions whose operands are
// resolved: registers have numbers, labels are positions, variables have addresses in their space.
//
// It owns syntax and names, not the meaning of instructions: an opcode is kept as written, in its
// parts. It imports nothing of this module. Source: NVIDIA, "Parallel Thread Execution ISA", 8.x.
package ptx

import (
	"fmt"
	"slices"
)

// A Module is one PTX file.
type Module struct {
	Version   string // "8.8"
	Target    string // "sm_75"
	Kernels   []*Kernel
	Variables []Variable // in .global and .const
}

// A Kernel is an .entry.
type Kernel struct {
	Name        string
	Line        int
	Params      []Variable
	ParamBytes  int
	SharedBytes int // of its .shared variables; those of extern ones begin behind them
	SharedAlign int // at least 16
	LocalBytes  int // of its .local variables, for each thread
	MaxThreads  int // .maxntid or .reqntid; 0 where there is none
	Registers   [Classes]int
	Code        []Instr
}

// A Space is a state space.
type Space uint8

// The spaces of variables.
const (
	NoSpace Space = iota
	Global        // .global and .const
	Shared
	Local
	Param
)

// A Variable has a place in its space.
type Variable struct {
	Name    string
	Line    int
	Space   Space
	Align   int
	Size    int    // bytes; 0 for extern arrays without one
	Address uint64 // bytes from the begin of the space's memory; 0 in Global, where the loader places it
	Data    []byte // what Global variables hold at first; nil is zeros
	extern  bool
}

// A Class is what kind of register: predicates, those of up to 32 bits, those of 64 bits.
type Class uint8

// The classes.
const (
	Pred Class = iota
	Word
	Long
	Classes
)

// An Instr is one instruction: "@!%p1 ld.global.v4.u32 {%r1, …}, [%rd1+16];".
type Instr struct {
	Line   int
	Guard  *Operand // a register of class Pred, with Not; nil where there is none
	Op     string   // "ld"
	Suffix []string // "global", "v4", "u32"
	Args   []Operand
}

// Opcode returns the opcode as written.
func (in *Instr) Opcode() string {
	s := in.Op
	for _, part := range in.Suffix {
		s += "." + part
	}
	return s
}

// Has tells whether a suffix is among those of the opcode.
func (in *Instr) Has(suffix string) bool { return slices.Contains(in.Suffix, suffix) }

// Type returns the last suffix, which in most opcodes is the type.
func (in *Instr) Type() string {
	if len(in.Suffix) == 0 {
		return ""
	}
	return in.Suffix[len(in.Suffix)-1]
}

// A Kind of operand.
type Kind uint8

// The kinds.
const (
	Register Kind = iota
	Immediate
	Special // %tid.x
	Address // [base + offset]
	Symbol  // a variable's name, as a number
	Label
	Vector // {a, b}
	Sink   // _
)

// An Operand of an instruction.
type Operand struct {
	Kind   Kind
	Not    bool      // !%p1
	Class  Class     // Register; of Address the base's
	Index  int       // Register: number in its class; Label: position in Code; Address: the base's number, −1 where there is none
	Type   string    // Register: as declared: "b32"
	Value  uint64    // Immediate: its bits; Address, Symbol: offset
	Float  bool      // Immediate: written as float64 0d… or as a decimal fraction, or as float32 0f…
	Bits   int       // Immediate with Float: 32 or 64
	Name   string    // Special, Symbol, Label, and Address that has a variable
	Space  Space     // Symbol and Address that has a variable
	extern bool      // Symbol, Address: of memory whose place is known at the kernel's end
	Parts  []Operand // Vector, also of the labels of a table; and the second of "%r1|%p1" as Parts[0] of a Register
}

// An Error is in a line of the PTX.
type Error struct {
	Line int
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("PTX line %d: %s", e.Line, e.Text) }

// Errorf makes an Error.
func Errorf(line int, format string, args ...any) error {
	return &Error{line, fmt.Sprintf(format, args...)}
}
