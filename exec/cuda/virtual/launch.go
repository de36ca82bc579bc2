package virtual

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"pesti/exec/cuda"
)

// A launch is one execution of a kernel.
type launch struct {
	function    *function
	grid, block cuda.Dim
	dynamic     int // bytes of shared memory
	params      []byte
	only        []*allocation // allocations that it may access; nil means all
}

// names returns the allocations that the parameters and the module's variables refer to.
func (l *launch) names(m *memory) []*allocation {
	list := []*allocation{}
	for _, v := range l.function.module.variables {
		list = append(list, v)
	}
	for at := 0; at+8 <= len(l.params); at += 8 {
		p := load64(l.params[at:])
		if a := m.at(p); a != nil && m.outside(p, 0) == "" {
			list = append(list, a)
		}
	}
	return list
}

// do runs all blocks. If several fault, it reports the first one in grid order.
func (l *launch) do(s *stream) error {
	d := s.device
	if l.function.module.programs == nil {
		return fmt.Errorf("virtual device: kernel %s runs after its module was unloaded", l.function.Name())
	}
	blocks := int64(l.grid.X) * int64(l.grid.Y) * int64(l.grid.Z)
	workers := int(min(int64(d.driver.config.Workers), blocks))
	var next, failed atomic.Int64
	failed.Store(blocks)
	groups := make([]*group, workers)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range workers {
		groups[i] = l.group(d)
		work := func() {
			for {
				n := next.Add(1) - 1
				if n >= failed.Load() {
					return
				}
				err := cuda.ErrCanceled // blocks may be too short to poll themselves
				if !d.driver.canceled() {
					err = groups[i].run(n)
				}
				if err == nil {
					continue
				}
				for {
					first := failed.Load()
					if n >= first {
						return
					}
					if failed.CompareAndSwap(first, n) {
						errs[i] = err
						return
					}
				}
			}
		}
		if i == workers-1 {
			work()
		} else {
			all.Go(work)
		}
	}
	all.Wait()
	total := d.counter(l.function.Name())
	total.Launches++
	var fault error
	first := blocks
	for i, g := range groups {
		total.Add(g.counted(), 1)
		if errs[i] != nil && g.index < first {
			fault, first = errs[i], g.index
		}
	}
	d.driver.memory.settle(total)
	l.function.program.idle = groups
	return fault
}

// group returns a group of an earlier launch, or a new one.
func (l *launch) group(d *Device) *group {
	p := l.function.program
	for i, g := range p.idle {
		if g.fits(l) {
			p.idle = slices.Delete(p.idle, i, i+1)
			g.launch, g.counts = l, cuda.Counts{}
			clear(g.tallies)
			for _, w := range g.warps {
				w.near = -1
			}
			return g
		}
	}
	return newGroup(l, d)
}

// fits reports whether a group has the threads and the shared memory that a launch needs.
func (g *group) fits(l *launch) bool {
	threads := 0
	for _, w := range g.warps {
		threads += bits.OnesCount32(w.all)
	}
	return threads == l.block.X*l.block.Y*l.block.Z && len(g.shared.data) == g.program.shared+l.dynamic
}

// A group executes blocks of threads, one after the other.
type group struct {
	launch  *launch
	device  *Device
	program *program
	memory  *memory
	index   int64 // in the grid
	place   cuda.Dim
	warps   []*warp
	shared  shared
	counts  cuda.Counts // memory traffic of the launch so far
	tallies []tally     // by basic block
	fault   error
}

func newGroup(l *launch, d *Device) *group {
	p := l.function.program
	g := &group{launch: l, device: d, program: p, memory: &d.driver.memory}
	g.shared = newShared(p.shared + l.dynamic)
	g.tallies = make([]tally, len(p.blocks))
	threads := l.block.X * l.block.Y * l.block.Z
	for at := 0; at < threads; at += 32 {
		w := &warp{
			group: g, number: at / 32, all: 0xffffffff,
			predicates: make([]uint32, p.predicates), words: make([]lanes, p.words), longs: make([]longs, p.longs),
			local: make([]byte, 32*p.local), near: -1,
		}
		if left := threads - at; left < 32 {
			w.all = 1<<left - 1
		}
		for _, k := range p.wordValues {
			for i := range w.words[k.slot] {
				w.words[k.slot][i] = uint32(k.value)
			}
		}
		for _, k := range p.longValues {
			for i := range w.longs[k.slot] {
				w.longs[k.slot][i] = k.value
			}
		}
		g.warps = append(g.warps, w)
	}
	return g
}

// run executes one block of threads: it runs each warp up to a barrier, then releases them.
func (g *group) run(index int64) error {
	x, y := int64(g.launch.grid.X), int64(g.launch.grid.Y)
	g.index, g.fault = index, nil
	g.place = cuda.Dim{X: int(index % x), Y: int(index / x % y), Z: int(index / x / y)}
	g.shared.begin()
	for _, w := range g.warps {
		w.begin()
	}
	for {
		running := 0
		for _, w := range g.warps {
			if w.state != ready {
				continue
			}
			running++
			w.run()
			if g.fault != nil {
				return g.fault
			}
		}
		if running > 0 {
			continue
		}
		done, err := g.release()
		if err != nil || done {
			return err
		}
	}
}

// release resumes the warps of a barrier that has enough threads. done means that no warp waits.
func (g *group) release() (done bool, err error) {
	waiting := slices.IndexFunc(g.warps, func(w *warp) bool { return w.state == halted })
	if waiting < 0 {
		return true, nil
	}
	first := g.warps[waiting]
	threads := 0
	var apart *warp
	for _, w := range g.warps {
		switch {
		case w.state == halted && w.barrier.id == first.barrier.id:
			threads += 32
		case apart == nil:
			apart = w
		}
	}
	if want := first.barrier.threads; want > 0 {
		if threads < want {
			return false, first.faultf(first.line, 0, "barrier %d waits for %d threads, but %d arrive", first.barrier.id, want, threads)
		}
	} else if apart != nil {
		where := "have left the kernel"
		if apart.state == halted {
			where = fmt.Sprintf("wait at barrier %d in PTX line %d", apart.barrier.id, apart.line)
		}
		return false, first.faultf(first.line, 0,
			"divergent barrier: it waits for all threads of the block, and those of warp %d %s", apart.number, where)
	}
	for _, w := range g.warps {
		if w.state == halted && w.barrier.id == first.barrier.id {
			w.state = ready
			if w.line != first.line || first.barrier.threads > 0 {
				g.shared.strict = true
			}
		}
	}
	g.shared.epoch++
	return false, nil
}
