// Package ptx parses PTX, the assembly language of CUDA, into instructions with resolved operands:
// registers have numbers, labels are positions, variables have addresses in their space.
//
// It handles syntax and names, not the semantics of instructions: an opcode is kept as written, split at
// its dots. It imports no package of this module. Source: NVIDIA, "Parallel Thread Execution ISA", 8.x.
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
	SharedBytes int // of its .shared variables; extern arrays begin after them
	SharedAlign int // at least 16
	LocalBytes  int // of its .local variables, for each thread
	MaxThreads  int // .maxntid or .reqntid, or 0
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

// A Variable is a variable in a state space.
type Variable struct {
	Name    string
	Line    int
	Space   Space
	Align   int
	Size    int    // bytes; 0 for extern arrays without one
	Address uint64 // offset in its space; 0 for Global, which the loader places
	Data    []byte // initial value of Global variables; nil means zeros
	extern  bool
}

// A Class is a class of registers: predicates, up to 32 bits, or 64 bits.
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
	Guard  *Operand // a register of class Pred, with Not, or nil
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

// Has reports whether the opcode has a suffix.
func (in *Instr) Has(suffix string) bool { return slices.Contains(in.Suffix, suffix) }

// Type returns the last suffix, which is the type for most opcodes.
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
	Class  Class     // Register: its class; Address: that of the base register
	Index  int       // Register: number in its class; Label: position in Code; Address: number of the base register, or −1
	Type   string    // Register: as declared: "b32"
	Value  uint64    // Immediate: its bits; Address, Symbol: offset
	Float  bool      // Immediate: written as 0d…, 0f… or a decimal fraction
	Bits   int       // Immediate with Float: 32 or 64
	Name   string    // Special, Symbol, Label, and Address with a variable
	Space  Space     // Symbol, and Address with a variable
	extern bool      // Symbol, Address: an extern array, whose address is known at the end of the kernel
	Parts  []Operand // Vector: its elements, or the labels of a table; Register: Parts[0] is %p1 of "%r1|%p1"
}

// An Error is an error in a line of PTX.
type Error struct {
	Line int
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("PTX line %d: %s", e.Line, e.Text) }

// Errorf returns an Error.
func Errorf(line int, format string, args ...any) error {
	return &Error{line, fmt.Sprintf(format, args...)}
}
