package virtual

import (
	"fmt"
	"slices"
	"time"

	"pesti/exec/cuda"
)

// A stream queues operations and executes them as late as possible: in Wait, when another stream awaits
// its event, before memory is freed, or when the queue is long. A host that does not wait therefore sees
// the same as with a slow GPU.
type stream struct {
	device    *Device
	queue     []command
	capturing bool
	noted     []command
	closed    bool
}

const queueMost = 4096

// A command returns an error of the host's call or of a kernel that trapped.
type command interface {
	do(s *stream) error
	// names returns the allocations that a replay may access.
	names(m *memory) []*allocation
}

// NewStream implements cuda.Device.
func (d *Device) NewStream() (cuda.Stream, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	s := &stream{device: d}
	d.streams = append(d.streams, s)
	return s, nil
}

func (s *stream) usable() error {
	if s.closed {
		return fmt.Errorf("virtual device: the stream is closed")
	}
	return s.device.usable()
}

func (s *stream) push(c command) error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.capturing {
		s.noted = append(s.noted, c)
		return nil
	}
	s.queue = append(s.queue, c)
	if len(s.queue) > queueMost {
		s.drain(1)
	}
	return s.device.err
}

// drain executes the first n commands.
func (s *stream) drain(n int) {
	for ; n > 0 && len(s.queue) > 0; n-- {
		c := s.queue[0]
		s.queue = s.queue[1:]
		if s.device.err != nil {
			continue
		}
		switch err := c.do(s); {
		case err == cuda.ErrCanceled:
			s.device.skipped = true
		case err != nil && s.device.err == nil:
			s.device.err = err
		}
	}
}

// Wait implements cuda.Stream.
func (s *stream) Wait() error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.capturing {
		return fmt.Errorf("virtual device: wait while the stream is capturing")
	}
	s.drain(len(s.queue))
	if s.device.skipped && s.device.err == nil {
		s.device.skipped = false
		return cuda.ErrCanceled
	}
	return s.device.err
}

// Close implements cuda.Stream. It first executes all pending commands.
func (s *stream) Close() error {
	if s.device.closed {
		return errClosed
	}
	if s.closed {
		return s.usable()
	}
	s.drain(len(s.queue))
	s.closed = true
	s.device.streams = slices.DeleteFunc(s.device.streams, func(o *stream) bool { return o == s })
	return s.device.err
}

// A transfer copies n bytes. One of dst and src may be host memory.
type transfer struct {
	what             string
	dstHost, srcHost []byte
	dst, src         cuda.Ptr
	n                int64
}

func (s *stream) transfer(t transfer) error {
	if err := s.usable(); err != nil {
		return err
	}
	// Check the ranges at once, as a driver does. They are checked again at the time of the copy.
	if _, _, _, _, err := s.ends(&t); err != nil {
		return err
	}
	return s.push(&t)
}

// Upload implements cuda.Stream.
func (s *stream) Upload(dst cuda.Ptr, src []byte) error {
	return s.transfer(transfer{what: "upload", dst: dst, srcHost: src, n: int64(len(src))})
}

// Download implements cuda.Stream. It reports memory that was never written.
func (s *stream) Download(dst []byte, src cuda.Ptr) error {
	return s.transfer(transfer{what: "download", dstHost: dst, src: src, n: int64(len(dst))})
}

// Copy implements cuda.Stream.
func (s *stream) Copy(dst, src cuda.Ptr, bytes int64) error {
	return s.transfer(transfer{what: "copy", dst: dst, src: src, n: bytes})
}

// ends returns both sides of the transfer. Host memory has no allocation.
func (s *stream) ends(t *transfer) (to, from *allocation, toAt, fromAt uint64, err error) {
	m := &s.device.driver.memory
	if t.dstHost == nil {
		if to, toAt, err = m.host(t.dst, t.n, t.what); err != nil {
			return
		}
	}
	if t.srcHost == nil {
		if from, fromAt, err = m.host(t.src, t.n, t.what); err != nil {
			return
		}
	}
	for _, a := range []*allocation{to, from} {
		if a != nil && !s.device.reaches(a.device) {
			err = fmt.Errorf("virtual device: %s of memory of device %d on device %d, which has no peer access to it", t.what, a.device.number, s.device.number)
		}
	}
	return
}

func (t *transfer) do(s *stream) error {
	if s.device.driver.canceled() {
		return cuda.ErrCanceled
	}
	to, from, toAt, fromAt, err := s.ends(t)
	if err != nil || t.n == 0 {
		return err
	}
	n := uint64(t.n)
	dst, src := t.dstHost, t.srcHost
	if to != nil {
		dst = to.data[toAt : toAt+n]
	}
	if from != nil {
		src = from.data[fromAt : fromAt+n]
	}
	if to == nil && from.init != nil && !from.init.has(fromAt, n) {
		return fmt.Errorf("virtual device: download of %d bytes at byte %d of memory of %d bytes: byte %d was never written",
			n, fromAt, from.bytes, from.init.missing(fromAt))
	}
	copy(dst, src)
	switch {
	case to == nil:
	case from == nil || from.init == nil || from.init.has(fromAt, n):
		to.written(toAt, n)
	default:
		for i := range n { // a copy of bytes that were never written does not count as a write
			if from.init.has(fromAt+i, 1) {
				to.wrote(toAt+i, 1)
			}
		}
	}
	return nil
}

func (t *transfer) names(m *memory) []*allocation { return nil }

type fill struct {
	dst   cuda.Ptr
	value byte
	n     int64
}

// Fill implements cuda.Stream.
func (s *stream) Fill(dst cuda.Ptr, value byte, bytes int64) error {
	if err := s.usable(); err != nil {
		return err
	}
	if _, _, err := s.device.driver.memory.host(dst, bytes, "fill"); err != nil {
		return err
	}
	return s.push(&fill{dst, value, bytes})
}

func (f *fill) do(s *stream) error {
	a, at, err := s.device.driver.memory.host(f.dst, f.n, "fill")
	if err != nil || f.n == 0 {
		return err
	}
	if !s.device.reaches(a.device) {
		return fmt.Errorf("virtual device: fill of memory of device %d on device %d, which has no peer access to it", a.device.number, s.device.number)
	}
	b := a.data[at : at+uint64(f.n)]
	for i := range b {
		b[i] = f.value
	}
	a.written(at, uint64(f.n))
	return nil
}

func (f *fill) names(m *memory) []*allocation { return nil }

// Launch implements cuda.Stream. Invalid launch parameters are reported at once.
func (s *stream) Launch(l cuda.Launch) error {
	if err := s.usable(); err != nil {
		return err
	}
	f, ok := l.Function.(*function)
	if !ok || f.module.device != s.device {
		return fmt.Errorf("virtual device: launch of a function of another device")
	}
	if f.module.programs == nil {
		return fmt.Errorf("virtual device: launch of kernel %s, whose module was unloaded", f.Name())
	}
	if err := f.accepts(l); err != nil {
		return fmt.Errorf("virtual device: kernel %s: %w", f.Name(), err)
	}
	return s.push(&launch{function: f, grid: l.Grid, block: l.Block, dynamic: l.Shared, params: slices.Clone(l.Params)})
}

// accepts checks a launch against the limits of devices.
func (f *function) accepts(l cuda.Launch) error {
	g, b := l.Grid, l.Block
	threads := b.X * b.Y * b.Z
	most := 1024
	if n := f.program.maxThreads; n > 0 {
		most = min(most, n)
	}
	switch {
	case g.X < 1 || g.Y < 1 || g.Z < 1 || g.X > 1<<31-1 || g.Y > 65535 || g.Z > 65535:
		return fmt.Errorf("a grid of %d×%d×%d blocks", g.X, g.Y, g.Z)
	case b.X < 1 || b.Y < 1 || b.Z < 1 || b.X > 1024 || b.Y > 1024 || b.Z > 64:
		return fmt.Errorf("blocks of %d×%d×%d threads", b.X, b.Y, b.Z)
	case threads > most:
		return fmt.Errorf("blocks of %d threads; it may have %d", threads, most)
	case l.Shared < 0 || l.Shared > f.shared && f.program.shared+l.Shared > 48<<10:
		return fmt.Errorf("%d bytes of dynamic shared memory; the function allows at most %d", l.Shared, f.shared)
	case len(l.Params) != f.program.params:
		return fmt.Errorf("%d bytes of parameters; it takes %d", len(l.Params), f.program.params)
	}
	return nil
}

// An event is a point in a stream. Each recording is another point.
type event struct {
	device   *Device
	stream   *stream // that recorded it last
	asked    int     // number of calls of Record
	recorded int     // number of recordings that were executed
	at       time.Time
	closed   bool
}

// NewEvent implements cuda.Device.
func (d *Device) NewEvent() (cuda.Event, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	d.events++
	return &event{device: d}, nil
}

func (e *event) Close() error {
	if e.device.closed {
		return errClosed
	}
	if !e.closed {
		e.closed = true
		e.device.events--
	}
	return e.device.err
}

// Since implements cuda.Event. It measures time on the host, which says nothing about a GPU.
func (e *event) Since(earlier cuda.Event) (float32, error) {
	if err := e.device.usable(); err != nil {
		return 0, err
	}
	first, ok := earlier.(*event)
	if !ok {
		return 0, fmt.Errorf("virtual device: an event of another driver")
	}
	for _, one := range []*event{first, e} {
		if one.closed || one.asked == 0 || one.recorded < one.asked {
			return 0, fmt.Errorf("virtual device: an event that is not set")
		}
	}
	return float32(e.at.Sub(first.at).Seconds() * 1000), e.device.err
}

type record struct{ event *event }

// Record implements cuda.Stream.
func (s *stream) Record(to cuda.Event) error {
	e, ok := to.(*event)
	if !ok || e.closed {
		return fmt.Errorf("virtual device: record of a closed event or one of another driver")
	}
	if err := s.push(&record{e}); err != nil {
		return err
	}
	if !s.capturing {
		e.stream = s
		e.asked++
	}
	return nil
}

func (r *record) do(s *stream) error {
	r.event.at = time.Now()
	r.event.recorded = min(r.event.recorded+1, r.event.asked) // a graph's recordings are not counted
	return nil
}

func (r *record) names(m *memory) []*allocation { return nil }

// An await waits until an event has been recorded that number of times.
type await struct {
	event    *event
	stream   *stream
	recorded int
}

// Await implements cuda.Stream. It awaits the most recent call of Record. An event that was never recorded
// does not block.
func (s *stream) Await(of cuda.Event) error {
	e, ok := of.(*event)
	if !ok || e.closed {
		return fmt.Errorf("virtual device: await of a closed event or one of another driver")
	}
	return s.push(&await{e, e.stream, e.asked})
}

func (a *await) do(s *stream) error {
	for a.event.recorded < a.recorded && a.stream != s && len(a.stream.queue) > 0 {
		a.stream.drain(1)
	}
	return nil
}

func (a *await) names(m *memory) []*allocation { return nil }
