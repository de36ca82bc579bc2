package virtual

import (
	"slices"

	"pesti/exec/cuda/virtual/ptx"
)

// undefined are registers that a kernel may read before it writes them. They are set to zero for each
// block of threads, so that results do not depend on which block ran before.
type undefined struct{ predicates, words, longs []int }

// noResult are the opcodes whose first operand is read.
var noResult = []string{"st", "red", "bra", "brx", "bar", "barrier", "cp", "ret", "exit", "membar", "fence", "trap", "prefetch", "nanosleep"}

// accesses calls read and then write for the registers of an instruction. One that is written under a
// guard is read too.
func accesses(in *ptx.Instr, read, write func(o *ptx.Operand)) {
	var each func(o *ptx.Operand, f func(o *ptx.Operand))
	each = func(o *ptx.Operand, f func(o *ptx.Operand)) {
		switch o.Kind {
		case ptx.Register:
			f(o)
		case ptx.Address:
			if o.Index >= 0 {
				read(o)
			}
		}
		for i := range o.Parts {
			each(&o.Parts[i], f)
		}
	}
	results := 1
	if slices.Contains(noResult, in.Op) {
		results = 0
	}
	if in.Guard != nil {
		read(in.Guard)
	}
	for i := results; i < len(in.Args); i++ {
		each(&in.Args[i], read)
	}
	if results > 0 && len(in.Args) > 0 {
		if in.Guard != nil {
			each(&in.Args[0], read)
		}
		each(&in.Args[0], write)
	}
}

// flow is the control flow of a kernel's code by instruction: where each goes on.
func flow(code []ptx.Instr) [][]int {
	next := make([][]int, len(code))
	for i := range code {
		in := &code[i]
		e, ok := ends(in)
		if !ok || e == waits || in.Guard != nil {
			if i+1 < len(code) {
				next[i] = append(next[i], i+1)
			}
		}
		if !ok {
			continue
		}
		for _, o := range in.Args {
			for _, o := range append([]ptx.Operand{o}, o.Parts...) {
				if o.Kind == ptx.Label && o.Index < len(code) {
					next[i] = append(next[i], o.Index)
				}
			}
		}
	}
	return next
}

// readFirst finds the registers that are live where a kernel begins.
func readFirst(k *ptx.Kernel) undefined {
	var offset [ptx.Classes]int
	total := 0
	for class, n := range k.Registers {
		offset[class] = total
		total += n
	}
	words := (total + 63) / 64
	live := make([][]uint64, len(k.Code)+1) // before each instruction
	for i := range live {
		live[i] = make([]uint64, words)
	}
	next := flow(k.Code)
	now := make([]uint64, words)
	for changed := true; changed; {
		changed = false
		for i := len(k.Code) - 1; i >= 0; i-- {
			clear(now)
			for _, to := range next[i] {
				for j, bits := range live[to] {
					now[j] |= bits
				}
			}
			place := func(o *ptx.Operand) int { return offset[o.Class] + o.Index }
			in := &k.Code[i]
			accesses(in, func(*ptx.Operand) {}, func(o *ptx.Operand) { now[place(o)/64] &^= 1 << (place(o) % 64) })
			accesses(in, func(o *ptx.Operand) { now[place(o)/64] |= 1 << (place(o) % 64) }, func(*ptx.Operand) {})
			if !slices.Equal(now, live[i]) {
				copy(live[i], now)
				changed = true
			}
		}
	}
	var u undefined
	for class, list := range []*[]int{ptx.Pred: &u.predicates, ptx.Word: &u.words, ptx.Long: &u.longs} {
		for i := range k.Registers[class] {
			at := offset[class] + i
			if live[0][at/64]>>(at%64)&1 != 0 {
				*list = append(*list, i)
			}
		}
	}
	return u
}
