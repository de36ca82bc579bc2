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

// A segment is a part of a program that runs as a unit: steps of one CUDA device whose launches can be
// captured in one CUDA graph, or consecutive waves of the host, or a single other step.
type segment struct {
	dev    *cudaDevice // nil if the steps are not launches
	steps  []*deviceStep
	graphs map[graphKey]cuda.Graph
	host   cpu.Schedule
}

// A graphKey has the values on which the launches of a segment depend.
type graphKey struct {
	kernel.Run
	top int // see Engine.StepTop
}

// segmentsOf divides the steps, by wave, into segments. Devices wait for each other only in transfers, so
// steps of one device form one segment even if steps of another device are between them.
func segmentsOf(waves [][]deviceStep, devices int) []segment {
	var list []segment
	open := make([]*segment, devices) // the unfinished segment of each device
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
				list = append(list, segment{})
			}
			list[len(list)-1].addWave(waves[w])
			continue
		}
		for i := range waves[w] {
			st := &waves[w][i]
			if st.binding == nil {
				endAll()
				list = append(list, segment{steps: []*deviceStep{st}})
				continue
			}
			if open[st.Device] == nil {
				open[st.Device] = &segment{dev: st.dev, graphs: map[graphKey]cuda.Graph{}}
			}
			open[st.Device].steps = append(open[st.Device].steps, st)
		}
	}
	endAll()
	return list
}

// addWave adds a wave of the host, with each worker's shares of all steps.
func (st *segment) addWave(steps []deviceStep) {
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

// A peerLink copies values from one device to another. The event ready is recorded when a value can be
// copied, and copied when the copy is done. Devices without peer access copy through staging, pinned host
// memory.
type peerLink struct {
	from, to      *cudaDevice
	ready, copied cuda.Event
	staging       []byte
}

// openLinks opens the links that transfers need.
func (d *cudaBackend) openLinks() error {
	sizes := map[[2]int]int64{} // size of the largest value that crosses a link
	for i := range d.engine.plan.Programs {
		g := &d.engine.plan.Programs[i]
		for _, st := range g.Steps() {
			if plan.IsTransfer(st.Kernel) {
				x, _ := d.ends(g, st)
				at := [2]int{x.Device, st.Device}
				sizes[at] = max(sizes[at], x.Size)
			}
		}
	}
	for from, a := range d.devices {
		for to, b := range d.devices {
			size, used := sizes[[2]int{from, to}]
			if !used || a == nil || b == nil {
				continue // a copy to or from the host needs no link
			}
			if err := d.openLink([2]int{from, to}, size); err != nil {
				return fmt.Errorf("plan: from device %d to device %d: %w", from, to, err)
			}
		}
	}
	return nil
}

// ends returns the buffer that a transfer reads and the one that it writes.
func (d *cudaBackend) ends(g *plan.Program, st *plan.Step) (x, y *plan.Buffer) {
	for _, a := range st.Args {
		if a.Role == "x" {
			x = d.engine.plan.Buffer(g, a.Buffer)
		} else {
			y = d.engine.plan.Buffer(g, a.Buffer)
		}
	}
	return x, y
}

// openLink opens the link between two devices of the plan, for values of at most size bytes.
func (d *cudaBackend) openLink(at [2]int, size int64) error {
	l := &peerLink{from: d.devices[at[0]], to: d.devices[at[1]]}
	d.links[at] = l
	var err error
	if l.ready, err = l.from.NewEvent(); err != nil {
		return err
	}
	if l.copied, err = l.to.NewEvent(); err != nil || l.from == l.to {
		return err
	}
	if err = l.to.EnablePeer(l.from.Device); errors.Is(err, cuda.ErrNoLink) {
		l.staging, err = l.from.allocHost(size)
	}
	return err
}

// HostStagedPairs returns the pairs of devices of the plan, from and to, that copy through host memory
// because they have no peer access.
func (e *Engine) HostStagedPairs() [][2]int {
	d, ok := e.backend.(*cudaBackend)
	if !ok {
		return nil
	}
	var list [][2]int
	for at, l := range d.links {
		if l.staging != nil {
			list = append(list, at)
		}
	}
	slices.SortFunc(list, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return list
}

// transfer copies the rows of a value to another device. Later steps on the source device wait until the
// copy is done, since they may overwrite the value.
func (d *cudaBackend) transfer(g *plan.Program, st *deviceStep, r kernel.Run) error {
	x, y := d.ends(g, st.Step)
	scope := d.engine.plan.Scope(g).Of(st.Step)
	scope.T, scope.R = int64(r.T), int64(r.R)
	sig, _ := plan.LookupKernel(st.Kernel) // Verify has checked it
	elems, err := sig.Elems(scope, "x")
	if err != nil {
		return err
	}
	bytes, err := sizeOf(x.Format, elems)
	if err != nil {
		return err
	}
	if from, to := d.devices[x.Device], d.devices[st.Device]; from == nil || to == nil {
		return d.hostCopy(g, x, y, from, to, bytes)
	}
	l := d.links[[2]int{x.Device, st.Device}]
	_, src := l.from.addressOf(g, x.ID)
	_, dst := l.to.addressOf(g, y.ID)
	return l.copy(dst, src, bytes)
}

// hostCopy copies a value between the host and a CUDA device, or on the host. from or to is nil for the host. It
// waits for the copy, because the host uses the memory next.
func (d *cudaBackend) hostCopy(g *plan.Program, x, y *plan.Buffer, from, to *cudaDevice, bytes int64) error {
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
		_, dst := to.addressOf(g, y.ID)
		return errors.Join(to.stream.Upload(dst, data[:bytes]), to.stream.Wait())
	}
	_, data := d.engine.buffer(g, y.ID, 0)
	_, src := from.addressOf(g, x.ID)
	return errors.Join(from.stream.Download(data[:bytes], src), from.stream.Wait())
}

func (l *peerLink) copy(dst, src cuda.Ptr, bytes int64) error {
	steps := []func() error{
		func() error { return l.from.stream.Record(l.ready) },
		func() error { return l.to.stream.Await(l.ready) },
		func() error { return l.to.stream.Copy(dst, src, bytes) },
	}
	if l.staging != nil {
		steps = []func() error{
			func() error { return l.from.stream.Download(l.staging[:bytes], src) },
			func() error { return l.from.stream.Record(l.ready) },
			func() error { return l.to.stream.Await(l.ready) },
			func() error { return l.to.stream.Upload(dst, l.staging[:bytes]) },
		}
	}
	steps = append(steps,
		func() error { return l.to.stream.Record(l.copied) },
		func() error { return l.from.stream.Await(l.copied) })
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (l *peerLink) close() error {
	var errs []error
	for _, e := range []cuda.Event{l.ready, l.copied} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}
