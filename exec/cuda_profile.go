package exec

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pesti/exec/cpu/kernel"
	"pesti/exec/cuda"
	"pesti/exec/plan"
)

// A meter measures the steps of a run on a device.
type meter interface {
	// before and after are called before and after the launches of a step, which is given by its ID.
	before(c *programClock, step int) error
	after(c *programClock, step int) error
	// collect is called after the device has finished all steps of a run.
	collect(c *programClock) error
	close() error
}

// newMeter returns a meter for a device. It reads counts if the device has counts instead of a clock, and otherwise
// records events.
func newMeter(device cuda.Device, stream cuda.Stream, p *profiler) (meter, error) {
	has := device.Properties()
	p.device = &has
	if c, ok := device.(cuda.Counting); ok {
		if len(p.ring) > 0 {
			return nil, fmt.Errorf("plan: the device counts the work of kernels but has no clock, which a trace needs; expected only a profile, or another device")
		}
		p.counted = true
		return &countMeter{c, c.Counters()}, nil
	}
	m := &eventMeter{stream: stream, profiler: p}
	for i := range p.programs {
		for range len(p.programs[i].times.Steps) - len(m.events) {
			var pair [2]cuda.Event
			for k := range pair {
				var err error
				if pair[k], err = device.NewEvent(); err != nil {
					return nil, errors.Join(err, m.close())
				}
				m.all = append(m.all, pair[k])
			}
			m.events = append(m.events, pair)
		}
	}
	return m, nil
}

// An eventMeter records an event before and after each step.
type eventMeter struct {
	stream   cuda.Stream
	profiler *profiler
	events   [][2]cuda.Event // by ID of the step
	all      []cuda.Event
	begin    time.Duration // of the first step, by the host's clock
}

func (m *eventMeter) before(c *programClock, step int) error {
	if step == 0 {
		m.begin = time.Since(m.profiler.epoch)
	}
	return m.stream.Record(m.events[step][0])
}

func (m *eventMeter) after(c *programClock, step int) error {
	return m.stream.Record(m.events[step][1])
}

// collect computes the times of steps relative to the first event.
func (m *eventMeter) collect(c *programClock) error {
	at := func(e cuda.Event) (time.Duration, error) {
		ms, err := e.Since(m.events[0][0])
		return m.begin + time.Duration(float64(ms)*float64(time.Millisecond)), err
	}
	spans := c.last[0]
	for i := range spans {
		var errs [2]error
		spans[i].Begin, errs[0] = at(m.events[i][0])
		spans[i].End, errs[1] = at(m.events[i][1])
		if err := errors.Join(errs[:]...); err != nil {
			return fmt.Errorf("step %d: reading its time: %w", i, err)
		}
	}
	return nil
}

func (m *eventMeter) close() error {
	var errs []error
	for _, e := range m.all {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// A countMeter assigns to each step the counts of the device during that step.
type countMeter struct {
	device cuda.Counting
	last   []cuda.Counts // before the step
}

func (m *countMeter) before(*programClock, int) error {
	m.last = m.device.Counters()
	return nil
}

func (m *countMeter) after(c *programClock, step int) error {
	now := m.device.Counters()
	for i := range now {
		n := now[i] // a copy
		if at := slices.IndexFunc(m.last, func(o cuda.Counts) bool { return o.Kernel == n.Kernel }); at >= 0 {
			n.Add(&m.last[at], -1)
		}
		if n.Launches > 0 {
			addCounts(&c.times.Counts[step], &n)
		}
	}
	return nil
}

func (m *countMeter) collect(*programClock) error { return nil }
func (m *countMeter) close() error                { return nil }

// addCounts adds the counts of a kernel to a list that has one entry per kernel.
func addCounts(list *[]cuda.Counts, c *cuda.Counts) {
	at := slices.IndexFunc(*list, func(o cuda.Counts) bool { return o.Kernel == c.Kernel })
	if at < 0 {
		*list = append(*list, *c)
		return
	}
	(*list)[at].Add(c, 1)
}

// runProfiled is run with a meter: it launches steps one by one, not as graphs.
func (d *cudaBackend) runProfiled(g *plan.Program, r kernel.Run) error {
	steps, clock := d.programs[g].steps, d.engine.profiler.clock(g)
	err := d.begin()
	for w := range steps {
		for i := range steps[w] {
			st := &steps[w][i]
			if err == nil {
				err = d.meter.before(clock, st.ID)
			}
			if err == nil {
				err = d.do(g, st, r)
			}
			if err == nil {
				err = d.meter.after(clock, st.ID)
			}
		}
	}
	if err = d.end(r, err); err != nil {
		return err
	}
	return d.meter.collect(clock)
}
