//go:build libcuda

package driver

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"pesti/exec/cuda"
)

type stream struct {
	device *device
	stream cu.Stream
}

func (s *stream) Upload(dst cuda.Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return s.device.do("uploading", func() error {
		return cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(unsafe.SliceData(src)), int64(len(src)), s.stream)
	})
}

func (s *stream) Download(dst []byte, src cuda.Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	return s.device.do("downloading", func() error {
		return cu.MemcpyDtoHAsync(unsafe.Pointer(unsafe.SliceData(dst)), cu.DevicePtr(src), int64(len(dst)), s.stream)
	})
}

// Copy relies on unified addressing: the driver determines the devices of the addresses.
func (s *stream) Copy(dst, src cuda.Ptr, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	return s.device.do("copying", func() error {
		return cu.MemcpyAsync(cu.DevicePtr(dst), cu.DevicePtr(src), bytes, s.stream)
	})
}

func (s *stream) Fill(dst cuda.Ptr, value byte, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	return s.device.do("filling", func() error {
		return cu.MemsetD8Async(cu.DevicePtr(dst), value, bytes, s.stream)
	})
}

func (s *stream) Launch(l cuda.Launch) error {
	f, ok := l.Function.(*function)
	if !ok {
		return fmt.Errorf("launching: the kernel is of another driver")
	}
	return s.device.do("launching "+f.name, func() error { return launch(f.function, l, s.stream) })
}

func (s *stream) Record(e cuda.Event) error {
	own, err := s.own(e)
	if err != nil {
		return err
	}
	return s.device.do("recording an event", func() error { return own.event.Record(s.stream) })
}

func (s *stream) Await(e cuda.Event) error {
	own, err := s.own(e)
	if err != nil {
		return err
	}
	return s.device.do("awaiting an event", func() error { return s.stream.Wait(own.event, 0) })
}

func (s *stream) own(e cuda.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok {
		return nil, errors.New("the event is of another driver")
	}
	return own, nil
}

func (s *stream) Wait() error { return s.device.do("running", s.stream.Synchronize) }

func (s *stream) Close() error { return s.device.do("closing a stream", s.stream.Destroy) }

type event struct {
	device *device
	event  cu.Event
}

func (e *event) Since(earlier cuda.Event) (float32, error) {
	from, ok := earlier.(*event)
	if !ok {
		return 0, errors.New("the event is of another driver")
	}
	var ms float64
	err := e.device.do("reading an event", func() (err error) {
		ms, err = from.event.Elapsed(e.event)
		return err
	})
	return float32(ms), err
}

func (e *event) Close() error {
	return e.device.do("closing an event", func() error { return cu.DestroyEvent(&e.event) })
}
