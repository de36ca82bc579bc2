package virtual

import (
	"encoding/binary"
	"math/bits"
	"strings"

	"pesti/exec/cuda/virtual/ptx"
)

// longCombines are the 64-bit operations of atom.
var longCombines = map[string]func(a, b uint64) uint64{
	"add.u64":  func(a, b uint64) uint64 { return a + b },
	"min.u64":  func(a, b uint64) uint64 { return min(a, b) },
	"max.u64":  func(a, b uint64) uint64 { return max(a, b) },
	"min.s64":  func(a, b uint64) uint64 { return uint64(min(int64(a), int64(b))) },
	"max.s64":  func(a, b uint64) uint64 { return uint64(max(int64(a), int64(b))) },
	"and.b64":  func(a, b uint64) uint64 { return a & b },
	"or.b64":   func(a, b uint64) uint64 { return a | b },
	"xor.b64":  func(a, b uint64) uint64 { return a ^ b },
	"exch.b64": func(a, b uint64) uint64 { return b },
	"add.f64":  func(a, b uint64) uint64 { return b64(f64(a) + f64(b)) },
}

// wordCombines are the 32-bit operations of atom that combines lacks.
var wordCombines = map[string]func(a, b uint32) uint32{
	"exch.b32": func(a, b uint32) uint32 { return b },
	"add.f32":  func(a, b uint32) uint32 { return b32(f32(a) + f32(b)) },
	"inc.u32": func(a, b uint32) uint32 {
		if a >= b {
			return 0
		}
		return a + 1
	},
	"dec.u32": func(a, b uint32) uint32 {
		if a == 0 || a > b {
			return b
		}
		return a - 1
	},
}

// atom is "atom.global.add.u32 d, [a], b", and cas with one operand more; red has no d. The lanes of a
// warp are processed in order.
func (c *compiler) atom(in *ptx.Instr) (func(w *warp), error) {
	n := len(in.Suffix)
	if n < 2 {
		return nil, unknown(in)
	}
	a := access{opcode: in.Opcode(), base: -1, write: true, atomic: true, size: uint64(ptx.Size(in.Type()))}
	a.total = a.size
	for _, s := range in.Suffix[:n-2] {
		if sp, ok := spaceNames[s]; ok && sp != paramSpace {
			a.space = sp
		} else if !isHint(s) {
			return nil, unknown(in)
		}
	}
	args := in.Args
	result := ptx.Operand{Kind: ptx.Sink}
	if in.Op == "atom" && len(args) > 0 {
		result, args = args[0], args[1:]
	}
	name := strings.Join(in.Suffix[n-2:], ".")
	cas := in.Suffix[n-2] == "cas"
	want := 2
	if cas {
		want = 3
	}
	if len(args) != want || a.size != 4 && a.size != 8 {
		return nil, unknown(in)
	}
	if err := c.to(in, &a, &args[0]); err != nil {
		return nil, err
	}
	value := func(o *ptx.Operand) (func(w *warp, lane int) uint64, error) {
		if a.size == 8 {
			slot, err := c.long(in, o)
			return func(w *warp, lane int) uint64 { return w.longs[slot][lane] }, err
		}
		slot, err := c.word(in, o)
		return func(w *warp, lane int) uint64 { return uint64(w.words[slot][lane]) }, err
	}
	b, err := value(&args[1])
	if err != nil {
		return nil, err
	}
	var change func(w *warp, lane int, old uint64) uint64
	if cas {
		swap, err := value(&args[2])
		if err != nil {
			return nil, err
		}
		change = func(w *warp, lane int, old uint64) uint64 {
			if old == b(w, lane) {
				return swap(w, lane)
			}
			return old
		}
	} else if f, ok := longCombines[name]; ok {
		change = func(w *warp, lane int, old uint64) uint64 { return f(old, b(w, lane)) }
	} else if f, ok := either(combines, wordCombines, name); ok {
		change = func(w *warp, lane int, old uint64) uint64 { return uint64(f(uint32(old), uint32(b(w, lane)))) }
	} else {
		return nil, unknown(in)
	}
	if result.Kind != ptx.Sink {
		class := ptx.Word
		if a.size == 8 {
			class = ptx.Long
		}
		if _, err := c.destination(in, &result, class); err != nil {
			return nil, err
		}
	}
	return func(w *warp) { w.atom(&a, &result, change) }, nil
}

func either(a, b map[string]func(a, b uint32) uint32, name string) (func(a, b uint32) uint32, bool) {
	if f, ok := a[name]; ok {
		return f, true
	}
	f, ok := b[name]
	return f, ok
}

func (w *warp) atom(a *access, result *ptx.Operand, change func(w *warp, lane int, old uint64) uint64) {
	at := w.addresses(a)
	sp := w.where(a, at)
	counts := w.group.traffic(sp)
	counts.Requests++
	counts.Read += int64(bits.OnesCount32(w.mask)) * int64(a.total)
	counts.Written += int64(bits.OnesCount32(w.mask)) * int64(a.total)
	if sp == sharedSpace {
		counts.Cut(passes(at, w.mask, 32, a.total))
	}
	if sp == global {
		counts.Cut(coalesced(at, w.mask, a.total))
		lock := &w.group.memory.atomics
		lock.Lock()
		defer lock.Unlock()
	}
	load := *a
	load.write = sp != global // an atomic on memory that was never written is a fault
	for m := w.mask; m != 0; m &= m - 1 {
		lane := first(m)
		b := w.bytes(&load, sp, lane, at[lane])
		if b == nil {
			return
		}
		if sp == global {
			w.find(at[lane]).touch(at[lane]-w.nearest.base, a.total, true)
		}
		old := element(b, a.size)
		v := change(w, lane, old)
		if a.size == 8 {
			binary.LittleEndian.PutUint64(b, v)
		} else {
			binary.LittleEndian.PutUint32(b, uint32(v))
		}
		switch {
		case result.Kind == ptx.Sink:
		case result.Class == ptx.Long:
			w.longs[result.Index][lane] = old
		default:
			w.words[result.Index][lane] = uint32(old)
		}
	}
}
