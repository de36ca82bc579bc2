package virtual

import (
	"cmp"
	"math/bits"
	"slices"

	"pesti/exec/cuda/virtual/ptx"
)

// undefined is the set of registers that a kernel may read before it writes them. They are set to zero for
// each block of threads, so that results do not depend on which block ran before.
type undefined struct{ predicates, words, longs []int }

// noResult has the opcodes whose first operand is read.
var noResult = []string{"st", "red", "bra", "brx", "bar", "barrier", "cp", "ret", "exit", "membar", "fence", "trap",
	"prefetch", "prefetchu", "nanosleep"}

// operands calls f with the registers of an instruction. A register written under a guard counts as read
// too.
func operands(in *ptx.Instr, f func(o *ptx.Operand, write bool)) {
	var each func(o *ptx.Operand, write bool)
	each = func(o *ptx.Operand, write bool) {
		switch {
		case o.Kind == ptx.Register:
			if write && in.Guard != nil {
				f(o, false)
			}
			f(o, write)
		case o.Kind == ptx.Address && o.Index >= 0:
			f(o, false)
		}
		for i := range o.Parts {
			each(&o.Parts[i], write)
		}
	}
	if in.Guard != nil {
		f(in.Guard, false)
	}
	for i := range in.Args {
		each(&in.Args[i], i == 0 && !slices.Contains(noResult, in.Op))
	}
}

// A bitset is a set of registers.
type bitset []uint64

func (b bitset) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }

// each calls f with the members.
func (b bitset) each(f func(i int)) {
	for at, word := range b {
		for ; word != 0; word &= word - 1 {
			f(64*at + bits.TrailingZeros64(word))
		}
	}
}

// An extent is a range of a kernel's code with the registers that are live before and after it.
type extent struct {
	from, to       int // positions in the code
	next           []int
	reads, writes  bitset // reads: before they are written
	before, behind bitset
}

// A numbering gives each register of a kernel a number that is unique over all classes.
type numbering [ptx.Classes]int

func (n numbering) of(o *ptx.Operand) int { return n[o.Class] + o.Index }

// liveness computes the live registers of each basic block.
func liveness(code []ptx.Instr, starts []int, n numbering, total int) []extent {
	words := (total + 63) / 64
	at := map[int]int{}
	for i, start := range starts {
		at[start] = i
	}
	extents := make([]extent, len(starts))
	for i := range extents {
		e := &extents[i]
		e.from, e.to = starts[i], len(code)
		if i+1 < len(starts) {
			e.to = starts[i+1]
		}
		e.reads, e.writes = make(bitset, words), make(bitset, words)
		e.before, e.behind = make(bitset, words), make(bitset, words)
		for j := e.from; j < e.to; j++ {
			operands(&code[j], func(o *ptx.Operand, write bool) {
				if r := n.of(o); !write && !e.writes.has(r) {
					e.reads.set(r)
				}
			})
			operands(&code[j], func(o *ptx.Operand, write bool) {
				if write {
					e.writes.set(n.of(o))
				}
			})
		}
		e.next = goesTo(code, e, at)
	}
	for changed := true; changed; {
		changed = false
		for i := len(extents) - 1; i >= 0; i-- {
			e := &extents[i]
			for _, to := range e.next {
				for j, word := range extents[to].before {
					e.behind[j] |= word
				}
			}
			for j := range e.before {
				if now := e.reads[j] | e.behind[j]&^e.writes[j]; now != e.before[j] {
					e.before[j], changed = now, true
				}
			}
		}
	}
	return extents
}

// goesTo returns the successors of an extent.
func goesTo(code []ptx.Instr, e *extent, at map[int]int) []int {
	var next []int
	falls := true
	if e.to > e.from {
		last := &code[e.to-1]
		if end, ok := ends(last); ok {
			falls = end == waits || last.Guard != nil
			for _, o := range last.Args {
				for _, o := range append([]ptx.Operand{o}, o.Parts...) {
					if to, ok := at[o.Index]; ok && o.Kind == ptx.Label {
						next = append(next, to)
					}
				}
			}
		}
	}
	if to, ok := at[e.to]; ok && falls {
		next = append(next, to)
	}
	return next
}

// A life is the live interval of a register, from its first to its last use. An instruction at position p
// reads at 2p and writes at 2p+1.
type life struct{ register, from, to int }

// renumber allocates registers: registers whose live intervals do not overlap share a number. Compiled
// PTX has a register for nearly every value; with fewer registers the state of a warp fits in the cache.
// It changes the kernel's code and returns the registers that are read before they are written.
func renumber(k *ptx.Kernel, starts []int) undefined {
	var n numbering
	total := 0
	for class, count := range k.Registers {
		n[class] = total
		total += count
	}
	lives := make([]life, total)
	for i := range lives {
		lives[i] = life{i, -1, -1}
	}
	touch := func(r, at int) {
		l := &lives[r]
		if l.to < 0 {
			l.from = at
		}
		l.from, l.to = min(l.from, at), max(l.to, at)
	}
	extents := liveness(k.Code, starts, n, total)
	for i := range extents {
		e := &extents[i]
		e.before.each(func(r int) { touch(r, 2*e.from) })
		e.behind.each(func(r int) { touch(r, 2*e.to-1) })
		for j := e.from; j < e.to; j++ {
			operands(&k.Code[j], func(o *ptx.Operand, write bool) { touch(n.of(o), 2*j+int(bit(write))) })
		}
	}
	numbers := make([]int, total)
	var u undefined
	for class, list := range []*[]int{ptx.Pred: &u.predicates, ptx.Word: &u.words, ptx.Long: &u.longs} {
		first := n[class]
		mine := slices.DeleteFunc(slices.Clone(lives[first:first+k.Registers[class]]), func(l life) bool { return l.to < 0 })
		k.Registers[class] = assign(mine, numbers)
		if len(extents) > 0 {
			for _, l := range mine {
				if extents[0].before.has(l.register) {
					*list = append(*list, numbers[l.register])
				}
			}
		}
	}
	for i := range k.Code {
		var last *ptx.Operand // a guarded result is visited twice in a row
		operands(&k.Code[i], func(o *ptx.Operand, _ bool) {
			if o != last {
				last = o
				o.Index = numbers[n.of(o)]
			}
		})
	}
	return u
}

// assign gives each live interval the lowest free number and returns how many numbers it used (Poletto and
// Sarkar, "Linear Scan Register Allocation", 1999, without spilling).
func assign(lives []life, numbers []int) int {
	slices.SortFunc(lives, func(a, b life) int { return cmp.Or(a.from-b.from, a.register-b.register) })
	var free []int
	var active []life
	count := 0
	for _, l := range lives {
		active = slices.DeleteFunc(active, func(old life) bool {
			if old.to < l.from {
				free = append(free, numbers[old.register])
				return true
			}
			return false
		})
		if len(free) == 0 {
			free = append(free, count)
			count++
		}
		lowest := 0
		for i, f := range free {
			if f < free[lowest] {
				lowest = i
			}
		}
		numbers[l.register] = free[lowest]
		free = slices.Delete(free, lowest, lowest+1)
		active = append(active, l)
	}
	return count
}
