package exec

import (
	"bytes"
	"context"
	"fmt"
	"unsafe"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
)

const (
	guardBytes  = 256     // bytes between two ranges of memory
	guardByte   = 0xa5    // value of guard bytes
	mostToWatch = 4 << 20 // bytes of memory, which is copied for every step
)

// A watcher runs an engine on one thread, worker after worker, and finds what each step changes.
type watcher struct {
	engine *Engine
	slab   []byte // all memory of the engine, each range between guards
	before []byte
	orders [2][]cpu.Schedule // by program: worker 0 first, worker 0 last
	err    error
}

// watch gives an open engine guarded memory and wraps every step.
func watch(e *Engine) (*watcher, error) {
	w := &watcher{engine: e}
	size := guardBytes
	for _, b := range append([][]byte{e.arenas[0]}, e.shared...) {
		size += (len(b)+cpu.Align-1)/cpu.Align*cpu.Align + guardBytes
	}
	words := make([]uint64, (size+cpu.Align)/8)
	w.slab = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	skip := -int(uintptr(unsafe.Pointer(&w.slab[0]))) & (cpu.Align - 1)
	w.slab = w.slab[skip : skip+size]
	for i := range w.slab {
		w.slab[i] = guardByte
	}
	at := guardBytes
	move := func(b *[]byte) {
		n := len(*b)
		*b = w.slab[at : at+n : at+n]
		clear(*b)
		at += (n+cpu.Align-1)/cpu.Align*cpu.Align + guardBytes
	}
	move(&e.arenas[0])
	for i := range e.shared {
		move(&e.shared[i])
	}
	w.before = make([]byte, len(w.slab))

	threads := e.Threads()
	sets, err := isa.UpTo(e.plan.Target.ISA)
	if err != nil {
		return nil, err
	}
	e.programs = nil
	if err := e.bind(threads, sets); err != nil {
		return nil, err
	}
	for i := range e.programs {
		g := &e.programs[i]
		for worker, waves := range g.schedule {
			for j := range waves {
				for k := range waves[j] {
					waves[j][k] = w.around(g.Program, &g.Waves[j].Steps[k], worker, waves[j][k])
				}
			}
		}
		for order := range w.orders {
			w.orders[order] = append(w.orders[order], serial(g.schedule, order == 1))
		}
	}
	e.machine.Close()
	e.machine = cpu.New(1)
	return w, nil
}

// serial returns a schedule in which one worker does the shares of all workers, one after another
// in each wave.
func serial(s cpu.Schedule, backward bool) cpu.Schedule {
	one := make([][]kernel.Func, len(s[0]))
	for j := range one {
		for i := range s {
			if backward {
				i = len(s) - 1 - i
			}
			one[j] = append(one[j], s[i][j]...)
		}
	}
	return cpu.Schedule{one}
}

// around returns f, one worker's share of a step, with a check of the memory that it changes.
func (w *watcher) around(g *plan.Program, st *plan.Step, worker int, f kernel.Func) kernel.Func {
	var own [][2]int // ranges that f may write
	add := func(id int) {
		_, b := w.engine.buffer(g, id, worker)
		if len(b) > 0 {
			at := int(uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&w.slab[0])))
			own = append(own, [2]int{at, at + len(b)})
		}
	}
	sig, _ := plan.LookupKernel(st.Kernel)
	for _, a := range st.Args {
		if sig.Operand(a.Role).Dir.Writes() {
			add(a.Buffer)
		}
	}
	if st.Scratch >= 0 {
		add(st.Scratch)
	}
	return func(r *kernel.Run) {
		copy(w.before, w.slab)
		f(r)
		for _, o := range own {
			copy(w.before[o[0]:o[1]], w.slab[o[0]:o[1]])
		}
		if w.err == nil && !bytes.Equal(w.before, w.slab) {
			at := 0
			for w.before[at] == w.slab[at] {
				at++
			}
			w.err = fmt.Errorf("program %s: step %d %q (%s), worker %d: changed byte %d, outside its results and its scratch %v", g.Name, st.ID, st.Name, st.Kernel, worker, at, own)
		}
	}
}

// run runs a batch in both orders of the workers, over two different patterns in the arena. It
// returns the engine's error in refused, which is harmless, or a detected fault in wrong.
func (w *watcher) run(b *Batch) (refused, wrong error) {
	e := w.engine
	var first []byte
	for order, schedules := range w.orders {
		for i := range e.programs {
			e.programs[i].schedule = schedules[i]
		}
		for i := range e.arenas[0] {
			e.arenas[0][i] = byte(0xff - 0x5a*order)
		}
		if err := e.Forward(context.Background(), b); err != nil {
			return err, w.err
		}
		var all []byte
		for _, s := range e.shared {
			all = append(all, s...)
		}
		if w.err != nil {
			return nil, w.err
		}
		if first == nil {
			first = all
		} else if !bytes.Equal(first, all) {
			return nil, fmt.Errorf("step of %d tokens and %d rows: the result depends on the order of workers, or on what the arena held before", len(b.Tokens), len(b.Rows))
		}
	}
	return nil, nil
}
