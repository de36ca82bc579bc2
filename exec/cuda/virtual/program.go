package virtual

import (
	"fmt"
	"slices"
	"strings"

	"pesti/exec/cuda/virtual/ptx"
)

// lanes is a register of up to 32 bits for all threads of a warp, and longs a 64-bit register. 16-bit
// values are zero-extended.
type (
	lanes = [32]uint32
	longs = [32]uint64
)

// A program is a kernel compiled for the interpreter.
type program struct {
	name       string
	params     int // bytes
	shared     int // bytes of static shared memory, rounded up to the start of dynamic memory
	local      int // bytes of local memory of a thread
	maxThreads int
	blocks     []block // basic blocks; the last is the exit, which is empty
	predicates int
	words      int
	longs      int
	wordValues []constant // constants of a launch
	longValues []constant
	specials   []special // special registers, set for each block of threads
	undefined  undefined
	idle       []*group // groups of earlier launches, for reuse
}

// A constant is a register with the same constant in every lane.
type constant struct {
	slot  int
	value uint64
}

// A special is a special register such as %tid.x.
type special struct {
	slot int
	long bool
	get  func(w *warp, lane int) uint64
}

// A block is a basic block. Its field ends says how it ends.
type block struct {
	code   []instruction
	ends   ending
	guard  guard // of the last instruction
	line   int
	next   int   // the block behind it
	target int   // of a branch
	table  []int // of an indexed branch: targets
	index  int   // and the register
	merge  int   // immediate post-dominator, where diverged lanes reconverge
	work   work
}

// An ending is how a basic block ends.
type ending uint8

const (
	falls ending = iota
	branches
	indexes
	exits
	waits // at a barrier
)

// A guard is the predicate of an instruction.
type guard struct {
	slot int // −1: always
	not  bool
}

// An instruction processes the lanes in w.mask.
type instruction struct {
	run   func(w *warp)
	guard guard
	line  int
}

// A compiler compiles one program.
type compiler struct {
	program   *program
	addresses map[string]uint64 // of the module's variables
	words     map[uint64]int    // constants by value
	longs     map[uint64]int
	special   map[string]int
	work      *work // of the current basic block
	quiet     bool  // nothing writes to shared memory between the barriers around it
}

// compile compiles a kernel and renumbers its registers. The error names an unsupported instruction.
func compile(k *ptx.Kernel, addresses map[string]uint64) (*program, error) {
	starts := leaders(k.Code)
	undefined := renumber(k, starts)
	c := &compiler{
		program: &program{
			name: k.Name, params: k.ParamBytes, shared: k.SharedBytes, local: k.LocalBytes, maxThreads: k.MaxThreads,
			predicates: k.Registers[ptx.Pred], words: k.Registers[ptx.Word], longs: k.Registers[ptx.Long],
			undefined: undefined,
		},
		addresses: addresses, words: map[uint64]int{}, longs: map[uint64]int{}, special: map[string]int{},
	}
	number := map[int]int{} // number of the block that begins at a position
	for i, at := range starts {
		number[at] = i
	}
	quiet := quietBlocks(k.Code, starts)
	for i, at := range starts {
		c.quiet = quiet[i]
		end := len(k.Code)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		b, err := c.block(k.Code[at:end], number)
		if err != nil {
			return nil, err
		}
		b.next = i + 1
		c.program.blocks = append(c.program.blocks, b)
	}
	c.program.blocks = append(c.program.blocks, block{ends: exits, guard: guard{slot: -1}, line: k.Line})
	merges(c.program.blocks)
	return c.program, nil
}

func (c *compiler) block(code []ptx.Instr, number map[int]int) (block, error) {
	b := block{guard: guard{slot: -1}}
	at := func(o ptx.Operand) int {
		if n, ok := number[o.Index]; ok {
			return n
		}
		return len(number) // the exit
	}
	for i := range code {
		in := &code[i]
		b.line = in.Line
		g := guard{slot: -1}
		if in.Guard != nil {
			g = guard{in.Guard.Index, in.Guard.Not}
		}
		end, ok := ends(in)
		if !ok {
			c.work = &b.work
			run, err := c.instruction(in)
			if err != nil {
				return b, err
			}
			b.work.add(in)
			b.code = append(b.code, instruction{run, g, in.Line})
			continue
		}
		b.ends, b.guard = end, g
		b.work.add(in)
		switch end {
		case branches:
			if len(in.Args) != 1 || in.Args[0].Kind != ptx.Label {
				return b, unknown(in)
			}
			b.target = at(in.Args[0])
		case indexes:
			if len(in.Args) != 2 || !in.Has("idx") || in.Args[1].Kind != ptx.Vector || in.Guard != nil {
				return b, unknown(in)
			}
			var err error
			if b.index, err = c.word(in, &in.Args[0]); err != nil {
				return b, err
			}
			for _, o := range in.Args[1].Parts {
				b.table = append(b.table, at(o))
			}
		case waits:
			run, err := c.bar(in)
			if err != nil {
				return b, err
			}
			b.code = append(b.code, instruction{run, guard{slot: -1}, in.Line})
			if in.Guard != nil {
				return b, ptx.Errorf(in.Line, "%s with a guard is not supported", in.Opcode())
			}
		}
	}
	return b, nil
}

func unknown(in *ptx.Instr) error {
	return ptx.Errorf(in.Line, "%s in this form is not supported", in.Opcode())
}

// instruction compiles an instruction that does not end a block.
func (c *compiler) instruction(in *ptx.Instr) (func(w *warp), error) {
	if in.Type() == "pred" && in.Op != "vote" {
		return c.logic(in)
	}
	if make, ok := families[in.Op]; ok {
		return make(c, in)
	}
	return c.arithmetic(in)
}

// word returns the slot of an operand of up to 32 bits.
func (c *compiler) word(in *ptx.Instr, o *ptx.Operand) (int, error) {
	switch o.Kind {
	case ptx.Register:
		if o.Class == ptx.Word && len(o.Parts) == 0 && !o.Not {
			return o.Index, nil
		}
	case ptx.Immediate:
		v := o.Value
		if o.Float && o.Bits == 64 {
			break
		}
		if !o.Float && ptx.Size(in.Type()) == 2 {
			v &= 0xffff
		}
		return c.constant(v & 0xffffffff), nil
	case ptx.Special:
		return c.specialSlot(in, o, false)
	case ptx.Symbol:
		if o.Space != ptx.Global {
			return c.constant(o.Value & 0xffffffff), nil
		}
	}
	return 0, ptx.Errorf(in.Line, "%s: an operand does not have 32 bits", in.Opcode())
}

// long returns the slot of an operand of 64 bits.
func (c *compiler) long(in *ptx.Instr, o *ptx.Operand) (int, error) {
	switch o.Kind {
	case ptx.Register:
		if o.Class == ptx.Long && len(o.Parts) == 0 && !o.Not {
			return o.Index, nil
		}
	case ptx.Immediate:
		if o.Float && o.Bits == 32 {
			break
		}
		return c.longConstant(o.Value), nil
	case ptx.Special:
		return c.specialSlot(in, o, true)
	case ptx.Symbol:
		return c.longConstant(c.address(o)), nil
	}
	return 0, ptx.Errorf(in.Line, "%s: an operand does not have 64 bits", in.Opcode())
}

// predicate returns the slot of a predicate.
func (c *compiler) predicate(in *ptx.Instr, o *ptx.Operand) (guard, error) {
	if o.Kind != ptx.Register || o.Class != ptx.Pred {
		return guard{}, ptx.Errorf(in.Line, "%s: an operand is not a predicate", in.Opcode())
	}
	return guard{o.Index, o.Not}, nil
}

// address returns the address of a symbol in its space.
func (c *compiler) address(o *ptx.Operand) uint64 {
	if o.Space == ptx.Global {
		return c.addresses[o.Name] + o.Value
	}
	return o.Value
}

func (c *compiler) constant(v uint64) int {
	slot, ok := c.words[v]
	if !ok {
		slot = c.program.words
		c.program.words++
		c.words[v] = slot
		c.program.wordValues = append(c.program.wordValues, constant{slot, v})
	}
	return slot
}

func (c *compiler) longConstant(v uint64) int {
	slot, ok := c.longs[v]
	if !ok {
		slot = c.program.longs
		c.program.longs++
		c.longs[v] = slot
		c.program.longValues = append(c.program.longValues, constant{slot, v})
	}
	return slot
}

// specials has the special registers by name.
var specials = map[string]func(w *warp, lane int) uint64{
	"%tid.x":             func(w *warp, lane int) uint64 { return uint64(w.thread(lane).X) },
	"%tid.y":             func(w *warp, lane int) uint64 { return uint64(w.thread(lane).Y) },
	"%tid.z":             func(w *warp, lane int) uint64 { return uint64(w.thread(lane).Z) },
	"%ntid.x":            func(w *warp, lane int) uint64 { return uint64(w.group.launch.block.X) },
	"%ntid.y":            func(w *warp, lane int) uint64 { return uint64(w.group.launch.block.Y) },
	"%ntid.z":            func(w *warp, lane int) uint64 { return uint64(w.group.launch.block.Z) },
	"%ctaid.x":           func(w *warp, lane int) uint64 { return uint64(w.group.place.X) },
	"%ctaid.y":           func(w *warp, lane int) uint64 { return uint64(w.group.place.Y) },
	"%ctaid.z":           func(w *warp, lane int) uint64 { return uint64(w.group.place.Z) },
	"%nctaid.x":          func(w *warp, lane int) uint64 { return uint64(w.group.launch.grid.X) },
	"%nctaid.y":          func(w *warp, lane int) uint64 { return uint64(w.group.launch.grid.Y) },
	"%nctaid.z":          func(w *warp, lane int) uint64 { return uint64(w.group.launch.grid.Z) },
	"%laneid":            func(w *warp, lane int) uint64 { return uint64(lane) },
	"%warpid":            func(w *warp, lane int) uint64 { return uint64(w.number) },
	"%nwarpid":           func(w *warp, lane int) uint64 { return uint64(len(w.group.warps)) },
	"%lanemask_eq":       func(w *warp, lane int) uint64 { return 1 << lane },
	"%lanemask_lt":       func(w *warp, lane int) uint64 { return 1<<lane - 1 },
	"%lanemask_le":       func(w *warp, lane int) uint64 { return 2<<lane - 1 },
	"%lanemask_gt":       func(w *warp, lane int) uint64 { return 0xffffffff &^ (2<<lane - 1) },
	"%lanemask_ge":       func(w *warp, lane int) uint64 { return 0xffffffff &^ (1<<lane - 1) },
	"%dynamic_smem_size": func(w *warp, lane int) uint64 { return uint64(w.group.launch.dynamic) },
	"%total_smem_size":   func(w *warp, lane int) uint64 { return uint64(len(w.group.shared.data)) },
}

func (c *compiler) specialSlot(in *ptx.Instr, o *ptx.Operand, long bool) (int, error) {
	get, ok := specials[o.Name]
	if !ok {
		return 0, ptx.Errorf(in.Line, "%s: register %s is not supported", in.Opcode(), o.Name)
	}
	key := fmt.Sprint(o.Name, long)
	slot, ok := c.special[key]
	if !ok {
		n := &c.program.words
		if long {
			n = &c.program.longs
		}
		slot = *n
		*n++
		c.special[key] = slot
		c.program.specials = append(c.program.specials, special{slot, long, get})
	}
	return slot, nil
}

// destination returns the register that an instruction writes.
func (c *compiler) destination(in *ptx.Instr, o *ptx.Operand, class ptx.Class) (int, error) {
	if o.Kind != ptx.Register || o.Class != class || o.Not {
		return 0, ptx.Errorf(in.Line, "%s: the result has another size than the register", in.Opcode())
	}
	return o.Index, nil
}

// without returns an opcode without the given suffixes, which have no effect here.
func without(in *ptx.Instr, drop ...string) string {
	s := in.Op
	for _, part := range in.Suffix {
		if !slices.Contains(drop, part) {
			s += "." + part
		}
	}
	return strings.TrimSuffix(s, ".")
}
