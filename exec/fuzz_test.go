package exec

import (
	"slices"
	"strings"
	"testing"

	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
)

// This file damages plans and runs the ones that still load. Such a plan may compute nonsense, but
// no step may access memory outside its operands, and no result may depend on earlier contents of
// memory or on the order of workers.

// batches returns the smallest and the largest batch of each program.
func batches(e *Engine) []Batch {
	var list []Batch
	for i := range e.programs {
		g := &e.programs[i]
		for _, n := range []int64{g.MinT, g.MaxT} {
			var b Batch
			n := int(min(n, int64(e.ctx), 100))
			for t := range n {
				// Two sequences if the plan has two; the last one is longer.
				seq, pos := len(e.sequences)-1, t
				if half := n / 3; len(e.sequences) > 1 && half > 0 {
					if seq = 0; t >= half {
						seq, pos = len(e.sequences)-1, t-half
					}
				}
				b.Tokens = append(b.Tokens, int32((e.vocab-1)*(t+1)%max(e.vocab, 1)))
				b.Seq = append(b.Seq, int32(seq))
				b.Pos = append(b.Pos, int32(pos+e.sequences[seq].length))
			}
			for r := range min(g.MaxR, 100) {
				b.Rows = append(b.Rows, int32(r)%int32(n))
			}
			list = append(list, b)
		}
	}
	return list
}

// try runs the plan of a text if it loads, and reports whether it did.
func try(t testing.TB, v victim, text string, what int) (loaded bool) {
	p, err := plan.Parse(plan.Seal([]byte(text)))
	if err != nil {
		return false
	}
	mend(p, what)
	if p, err = plan.Parse(plan.Print(p)); err != nil {
		t.Fatalf("printed, but not read again: %v", err)
	}
	e, err := Open(p, v.file, Options{Threads: min(2, max(p.Target.Threads, 1))})
	if err != nil {
		return false
	}
	defer e.Close()
	if m := &p.Memory; m.Arena+m.State+m.IO > mostToWatch {
		return true
	}
	w, err := watch(e)
	if err != nil {
		t.Fatalf("bound once, not twice: %v", err)
	}
	for i := range e.programs {
		for _, b := range batches(e)[2*i : 2*i+2] {
			_, wrong := w.run(&b)
			if wrong != nil {
				t.Fatalf("%v\n%s", wrong, plan.Print(p))
			}
		}
	}
	return true
}

// FuzzPlans edits plans as the bytes direct, repairs some of the inconsistencies, and runs the
// plans that load. The bytes select fields of freshly compiled plans, so an input means something
// else after a change of the compiler. Bugs that it finds therefore become separate tests.
func FuzzPlans(f *testing.F) {
	list := victims(f)
	scripts := make([]*script, len(list))
	for i, v := range list {
		scripts[i] = newScript(string(plan.Print(v.plan)))
		f.Add(byte(i), byte(0), []byte{})
		f.Add(byte(i), byte(mendAll), []byte("0000000011111111"))
	}
	f.Fuzz(func(t *testing.T, which, what byte, edits []byte) {
		i := int(which) % len(list)
		try(t, list[i], scripts[i].ruined(&chooser{edits}), int(what))
	})
}

func TestVictims(t *testing.T) {
	for _, v := range victims(t) {
		if err := plan.Verify(v.plan); err != nil {
			t.Errorf("%s: %v\n%s", v.name, err, plan.Print(v.plan))
			continue
		}
		if !try(t, v, string(plan.Print(v.plan)), 0) {
			t.Errorf("%s: does not load", v.name)
		}
	}
}

// The watcher detects a stray write, a stale read, and a result that depends on the order of
// workers.
func TestWatcherSees(t *testing.T) {
	v := victims(t)[0]
	for name, c := range map[string]struct {
		want string
		harm func(w *watcher, g *program, first []kernel.Func) []kernel.Func
	}{
		"nothing": {"", func(w *watcher, g *program, first []kernel.Func) []kernel.Func { return first }},
		"stray byte": {"changed byte", func(w *watcher, g *program, first []kernel.Func) []kernel.Func {
			stray := func(*kernel.Run) { w.slab[len(w.slab)-1]++ }
			return append(first, w.around(g.Program, &g.Waves[0].Steps[0], 0, stray))
		}},
		"stale read": {"depends on", func(w *watcher, g *program, first []kernel.Func) []kernel.Func { return first[1:] }},
		"order": {"depends on", func(w *watcher, g *program, first []kernel.Func) []kernel.Func {
			return append(first, func(*kernel.Run) { w.engine.logits[0]++ })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Open(v.plan, v.file, Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			w, err := watch(e)
			if err != nil {
				t.Fatal(err)
			}
			for order := range w.orders {
				if name == "order" && order == 0 {
					continue
				}
				for i := range e.programs {
					waves := w.orders[order][i][0]
					at := 0
					if name == "order" {
						at = len(waves) - 1
					}
					waves[at] = c.harm(w, &e.programs[i], slices.Clone(waves[at]))
				}
			}
			var got string
			for _, b := range batches(e) {
				if refused, wrong := w.run(&b); refused != nil {
					t.Fatal(refused)
				} else if wrong != nil {
					got = wrong.Error()
					break
				}
			}
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("saw %q, want %q", got, c.want)
			}
		})
	}
}

// A plan without caches may have any context, since none is allocated.
func TestContextWithoutCaches(t *testing.T) {
	list := victims(t)
	v := list[len(list)-1]
	v.plan.Buffers = slices.DeleteFunc(v.plan.Buffers, func(b plan.Buffer) bool { return b.Name == "pages" })
	v.plan.Target.Ctx = 1 << 50
	v.plan.Target.Sequences = 1 << 16
	mend(v.plan, mendAll)
	if !try(t, v, string(plan.Print(v.plan)), 0) {
		t.Error("does not load")
	}
	e, err := Open(v.plan, v.file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.sequences[0].length != 0 || len(e.pages.free) != 0 {
		t.Errorf("%d pages for a plan that reads none", len(e.pages.free))
	}
}

// A cache that is read before it is written would expose another sequence's values.
func TestCacheReadTooEarly(t *testing.T) {
	v := victims(t)[2]
	g := &v.plan.Programs[0]
	var write, read *plan.Step
	each(g, func(_ int, st *plan.Step) {
		switch st.Kernel {
		case "ref.kv_write":
			write = st // the last write of keys
		case "ref.attn_scores":
			read = st
		}
	})
	if write == nil || read == nil {
		t.Fatal("the unfused plan writes or reads no cache")
	}
	*write, *read = *read, *write
	mend(v.plan, mendNumbers|mendPlaces|mendSums)
	_, err := Open(v.plan, v.file, Options{})
	if err == nil || !strings.Contains(err.Error(), "cache_k") || !strings.Contains(err.Error(), "is read before") {
		t.Errorf("error %v, want one that names the cache of keys", err)
	}
}
