//go:build libcuda

package driver

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"pesti/exec/cuda"
	"pesti/exec/plan"
)

// A device is a context on a device. Destroying the context frees most of what was allocated from it.
type device struct {
	number     cu.Device
	context    cu.CUContext
	properties cuda.Properties
	closed     bool

	// Resources that outlive the context and must be freed separately.
	host   map[*byte]bool
	graphs map[*graph]bool
}

func open(number int) (*device, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d := &device{host: map[*byte]bool{}, graphs: map[*graph]bool{}}
	var err error
	if d.number, err = cu.GetDevice(number); err != nil {
		return nil, failed("opening", err)
	}
	if d.context, err = d.number.MakeContext(cu.SchedAuto); err != nil {
		return nil, failed("opening", err)
	}
	if d.properties, err = describe(d.number); err == nil {
		d.properties.Free, _, err = cu.MemInfo()
	}
	if err != nil {
		return nil, errors.Join(failed("reading properties", err), d.Close())
	}
	return d, nil
}

var errClosed = errors.New("the device is closed")

// do calls f with the device's context current. A goroutine may run on any thread, so every call sets the
// context; this is cheaper than a dedicated thread for each device.
func (d *device) do(what string, f func() error) error {
	if d.closed {
		return fmt.Errorf("%s: %w", what, errClosed)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cu.SetCurrentContext(d.context)
	if err == nil {
		err = f()
	}
	return failed(what, err)
}

func (d *device) Properties() cuda.Properties { return d.properties }

func (d *device) Alloc(bytes int64) (cuda.Ptr, error) {
	if bytes < 1 {
		return 0, fmt.Errorf("allocating %d bytes, expected one or more", bytes)
	}
	var p cu.DevicePtr
	var free, all int64
	err := d.do("allocating "+plan.HumanBytes(bytes), func() (err error) {
		if p, err = cu.MemAlloc(bytes); err != nil {
			free, all, _ = cu.MemInfo()
		}
		return err
	})
	if errors.Is(err, cuda.ErrOutOfMemory) {
		return 0, fmt.Errorf("%w: %s free of %s", err, plan.HumanBytes(free), plan.HumanBytes(all))
	}
	return cuda.Ptr(p), err
}

func (d *device) Free(p cuda.Ptr) error {
	return d.do("freeing memory", func() error { return cu.MemFree(cu.DevicePtr(p)) })
}

func (d *device) AllocHost(bytes int) ([]byte, error) {
	if bytes < 1 {
		return nil, fmt.Errorf("allocating %d bytes of host memory, expected one or more", bytes)
	}
	var b []byte
	err := d.do("allocating "+plan.HumanBytes(int64(bytes))+" of host memory", func() (err error) {
		b, err = allocHost(bytes)
		return err
	})
	if err == nil {
		d.host[unsafe.SliceData(b)] = true
	}
	return b, err
}

func (d *device) FreeHost(b []byte) error {
	p := unsafe.SliceData(b)
	if !d.host[p] {
		return errors.New("freeing host memory that the device did not give out")
	}
	delete(d.host, p)
	return d.do("freeing host memory", func() error { return cu.MemFreeHost(unsafe.Pointer(p)) })
}

func (d *device) NewStream() (cuda.Stream, error) {
	s := &stream{device: d}
	err := d.do("making a stream", func() (err error) {
		s.stream, err = cu.MakeStream(cu.NonBlocking)
		return err
	})
	return s, err
}

func (d *device) NewEvent() (cuda.Event, error) {
	e := &event{device: d}
	err := d.do("making an event", func() (err error) {
		e.event, err = cu.MakeEvent(cu.DefaultEvent)
		return err
	})
	return e, err
}

func (d *device) EnablePeer(other cuda.Device) error {
	o, ok := other.(*device)
	if !ok || o.closed {
		return errors.New("enabling peer copies: the other device is closed or belongs to another driver")
	}
	return d.do("enabling peer copies", func() error {
		can, err := d.number.CanAccessPeer(o.number)
		if err != nil {
			return err
		}
		if can == 0 {
			return fmt.Errorf("devices %d and %d: %w", d.number, o.number, cuda.ErrNoLink)
		}
		err = statusOf(o.context.EnablePeerAccess(0))
		if errors.Is(err, peerAlreadyEnabled) {
			return nil
		}
		return err
	})
}

// Close frees everything and destroys the context. It continues after errors and returns the first one.
// After a kernel trapped, this is the error of that kernel again.
func (d *device) Close() error {
	if d.closed {
		return nil
	}
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	for g := range d.graphs {
		keep(g.Close())
	}
	for p := range d.host {
		keep(d.FreeHost(unsafe.Slice(p, 1)))
	}
	keep(d.do("closing the device", d.context.Destroy))
	d.closed = true
	return first
}
