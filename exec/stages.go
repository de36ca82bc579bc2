package exec

import (
	"errors"
	"fmt"
	"slices"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/cuda"
	"pesti/exec/plan"
)

// A stage is steps of one card that follow each other with nothing between them, so that their launches
// may be captured in one graph, or waves of the host, or one step that is neither.
type stage struct {
	card   *card // nil where the steps are no launches
	steps  []*deviceStep
	graphs map[replayed]cuda.Graph
	host   cpu.Schedule
}

// A replayed is what the launches of a stage depend on.
type replayed struct {
	kernel.Run
	top int // see Engine.StepTop
}

// stagesOf cuts steps, by wave, into stages. Launches of different cards wait for each other in transfers
// alone, so that steps of a card that stand apart for those of another still make one stage.
func stagesOf(waves [][]deviceStep, cards int) []stage {
	var list []stage
	open := make([]*stage, cards) // of each card
	end := func(device int) {
		if st := open[device]; st != nil {
			list, open[device] = append(list, *st), nil
		}
	}
	endAll := func() {
		for d := range open {
			end(d)
		}
	}
	for w := range waves {
		if len(waves[w]) > 0 && waves[w][0].shares != nil {
			endAll()
			if n := len(list); n == 0 || list[n-1].host == nil {
				list = append(list, stage{})
			}
			list[len(list)-1].addWave(waves[w])
			continue
		}
		for i := range waves[w] {
			st := &waves[w][i]
			if st.binding == nil {
				endAll()
				list = append(list, stage{steps: []*deviceStep{st}})
				continue
			}
			if open[st.Device] == nil {
				open[st.Device] = &stage{card: st.card, graphs: map[replayed]cuda.Graph{}}
			}
			open[st.Device].steps = append(open[st.Device].steps, st)
		}
	}
	endAll()
	return list
}

// addWave adds a wave of the host, in which each worker has its shares of all steps.
func (st *stage) addWave(steps []deviceStep) {
	if st.host == nil {
		st.host = make(cpu.Schedule, len(steps[0].shares))
	}
	for w := range st.host {
		var shares []kernel.Func
		for i := range steps {
			shares = append(shares, steps[i].shares[w])
		}
		st.host[w] = append(st.host[w], shares)
	}
}

// A link is the way from one card to another: two events, of what is there to be brought and of what was
// brought, and where devices do not reach each other memory of the host in between.
type link struct {
	from, to     *card
	sent, landed cuda.Event
	between      []byte
}

// link opens the links that transfers need.
func (d *device) link() error {
	sizes := map[[2]int]int64{} // of the largest value that a link brings
	for i := range d.engine.plan.Programs {
		g := &d.engine.plan.Programs[i]
		for _, w := range g.Waves {
			for k := range w.Steps {
				if st := &w.Steps[k]; plan.IsTransfer(st.Kernel) {
					x, _ := d.ends(g, st)
					at := [2]int{x.Device, st.Device}
					sizes[at] = max(sizes[at], x.Size)
				}
			}
		}
	}
	for from, a := range d.cards {
		for to, b := range d.cards {
			size, used := sizes[[2]int{from, to}]
			if !used || a == nil || b == nil {
				continue // the host waits for it
			}
			if err := d.openLink([2]int{from, to}, size); err != nil {
				return fmt.Errorf("plan: from device %d to device %d: %w", from, to, err)
			}
		}
	}
	return nil
}

// ends are the value that a transfer reads and the copy that it writes.
func (d *device) ends(g *plan.Program, st *plan.Step) (x, y *plan.Buffer) {
	for _, a := range st.Args {
		if a.Role == "x" {
			x = d.engine.bufferOf(g, a.Buffer)
		} else {
			y = d.engine.bufferOf(g, a.Buffer)
		}
	}
	return x, y
}

// openLink opens the link between two places, for values of so many bytes.
func (d *device) openLink(at [2]int, size int64) error {
	l := &link{from: d.cards[at[0]], to: d.cards[at[1]]}
	d.links[at] = l
	var err error
	if l.sent, err = l.from.NewEvent(); err != nil {
		return err
	}
	if l.landed, err = l.to.NewEvent(); err != nil || l.from == l.to {
		return err
	}
	if err = l.to.EnablePeer(l.from.Device); errors.Is(err, cuda.ErrNoLink) {
		l.between, err = l.from.allocHost(size)
	}
	return err
}

// Detours returns the devices of the plan, from and to, between which values go through memory of the host
// since they do not reach each other's.
func (e *Engine) Detours() [][2]int {
	d, ok := e.backend.(*device)
	if !ok {
		return nil
	}
	var list [][2]int
	for at, l := range d.links {
		if l.between != nil {
			list = append(list, at)
		}
	}
	slices.SortFunc(list, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return list
}

// transfer brings the rows of a value to another card. What comes after on the card that has it waits
// until they are there: it may write over them.
func (d *device) transfer(g *plan.Program, st *deviceStep, r kernel.Run) error {
	x, y := d.ends(g, st.Step)
	scope := d.engine.plan.Scope(g).Of(st.Step)
	scope.T, scope.R = int64(r.T), int64(r.R)
	sig, _ := plan.LookupKernel(st.Kernel) // as Verify has seen
	elems, err := sig.Elems(scope, "x")
	if err != nil {
		return err
	}
	bytes, err := sizeOf(x.Format, elems)
	if err != nil {
		return err
	}
	if from, to := d.cards[x.Device], d.cards[st.Device]; from == nil || to == nil {
		return d.ferry(g, x, y, from, to, bytes)
	}
	l := d.links[[2]int{x.Device, st.Device}]
	_, src := l.from.placeOf(g, x.ID)
	_, dst := l.to.placeOf(g, y.ID)
	return l.copy(dst, src, bytes)
}

// ferry brings a value from the host to a card or back, or leaves a copy on the host, which is nil among
// cards, and waits for it: the host goes on to use that memory.
func (d *device) ferry(g *plan.Program, x, y *plan.Buffer, from, to *card, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if from == nil && to == nil {
		_, dst := d.engine.buffer(g, y.ID, 0)
		_, src := d.engine.buffer(g, x.ID, 0)
		copy(dst[:bytes], src[:bytes])
		return nil
	}
	if from == nil {
		_, data := d.engine.buffer(g, x.ID, 0)
		_, dst := to.placeOf(g, y.ID)
		return errors.Join(to.stream.Upload(dst, data[:bytes]), to.stream.Wait())
	}
	_, data := d.engine.buffer(g, y.ID, 0)
	_, src := from.placeOf(g, x.ID)
	return errors.Join(from.stream.Download(data[:bytes], src), from.stream.Wait())
}

func (l *link) copy(dst, src cuda.Ptr, bytes int64) error {
	steps := []func() error{
		func() error { return l.from.stream.Record(l.sent) },
		func() error { return l.to.stream.Await(l.sent) },
		func() error { return l.to.stream.Copy(dst, src, bytes) },
	}
	if l.between != nil {
		steps = []func() error{
			func() error { return l.from.stream.Download(l.between[:bytes], src) },
			func() error { return l.from.stream.Record(l.sent) },
			func() error { return l.to.stream.Await(l.sent) },
			func() error { return l.to.stream.Upload(dst, l.between[:bytes]) },
		}
	}
	steps = append(steps,
		func() error { return l.to.stream.Record(l.landed) },
		func() error { return l.from.stream.Await(l.landed) })
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) close() error {
	var errs []error
	for _, e := range []cuda.Event{l.sent, l.landed} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}
