package exec_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/lower"
)

// A flaky driver has a device that fails one launch and all calls of Free.
type flaky struct {
	cuda.Driver
	launches int // number of the launch that fails
	kept     error
}

var errRefused = errors.New("refused")

func (f *flaky) Open(number int) (cuda.Device, error) {
	device, err := f.Driver.Open(number)
	return flakyDevice{device, f}, err
}

type flakyDevice struct {
	cuda.Device
	of *flaky
}

func (d flakyDevice) NewStream() (cuda.Stream, error) {
	s, err := d.Device.NewStream()
	return flakyStream{s, d.of}, err
}

func (d flakyDevice) Free(p cuda.Ptr) error { return errors.Join(d.of.kept, d.Device.Free(p)) }

type flakyStream struct {
	cuda.Stream
	of *flaky
}

func (s flakyStream) Launch(l cuda.Launch) error {
	if s.of.launches--; s.of.launches == 0 {
		return errRefused
	}
	return s.Stream.Launch(l)
}

// TestDeviceRefused checks that after a launch has failed during a capture every run fails with that error,
// and that Close frees everything and returns the errors of freeing.
func TestDeviceRefused(t *testing.T) {
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	res, err := lower.Compile(m, lower.Options{Target: plan.CUDA, Ctx: 32})
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []error{nil, errors.New("memory stays")} {
		driver := &flaky{virtual.New(virtual.Config{}), 5, kept}
		e, err := exec.Open(res.Plan, f, exec.Options{Driver: driver})
		if err != nil {
			t.Fatal(err)
		}
		s, err := exec.NewSession(e)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := s.Feed(t.Context(), []int32{1}); !errors.Is(err, errRefused) || s.Pos() != 0 {
				t.Errorf("error %v at position %d, expected %v at 0", err, s.Pos(), errRefused)
			}
		}
		if err := e.Close(); !errors.Is(err, kept) {
			t.Errorf("Close: error %v, expected %v", err, kept)
		}
	}
}

// A meager driver has a virtual device that reports more free memory than it has, as if another program had
// just taken some, and refuses one allocation of host memory.
type meager struct {
	cuda.Driver
	hosts  int // number of the allocation of host memory that is refused
	device cuda.Device
}

func (m *meager) Open(number int) (cuda.Device, error) {
	device, err := m.Driver.Open(number)
	m.device = device
	return meagerDevice{device, m}, err
}

type meagerDevice struct {
	cuda.Device
	of *meager
}

func (d meagerDevice) Properties() cuda.Properties {
	p := d.Device.Properties()
	p.Free = 1 << 40
	return p
}

func (d meagerDevice) AllocHost(bytes int) ([]byte, error) {
	if d.of.hosts--; d.of.hosts == 0 {
		return nil, fmt.Errorf("%d bytes of host memory: %w", bytes, cuda.ErrOutOfMemory)
	}
	return d.Device.AllocHost(bytes)
}

// TestDeviceMemoryRefused lets each allocation of device memory and of pinned host memory fail. The error is
// ErrOutOfMemory, everything else is freed, and other errors of a device are not ErrOutOfMemory.
func TestDeviceMemoryRefused(t *testing.T) {
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	res, err := lower.Compile(m, lower.Options{Target: plan.CUDA, Ctx: 32})
	if err != nil {
		t.Fatal(err)
	}
	open := func(memory int64, hosts int) error {
		p := virtual.Default()
		p.Memory = memory
		driver := &meager{virtual.New(virtual.Config{Devices: []cuda.Properties{p}}), hosts, nil}
		e, err := exec.Open(res.Plan, f, exec.Options{Driver: driver})
		if err == nil {
			return e.Close()
		}
		if _, again := driver.device.NewStream(); again == nil {
			t.Errorf("%d bytes of memory: the device is still open after error %v", memory, err)
		}
		if strings.Contains(err.Error(), "not freed") {
			t.Errorf("%d bytes of memory: %v", memory, err)
		}
		return err
	}
	const plenty = 1 << 30
	if err := open(plenty, 0); err != nil {
		t.Fatal(err)
	}
	enough := int64(1)
	for open(enough, 0) != nil {
		enough *= 2
	}
	refused := map[string]bool{}
	for memory := enough / 64; memory < enough; memory += enough / 64 {
		err := open(memory, 0)
		if err == nil {
			break
		}
		if !errors.Is(err, exec.ErrOutOfMemory) || !errors.Is(err, cuda.ErrOutOfMemory) {
			t.Errorf("%d bytes of memory: error %v, expected %v", memory, err, exec.ErrOutOfMemory)
		}
		refused[err.Error()] = true
	}
	if len(refused) < 5 {
		t.Errorf("%d different allocations were refused, expected 5 or more", len(refused))
	}
	hosts := 1
	for ; ; hosts++ {
		err := open(plenty, hosts)
		if err == nil {
			break
		}
		if !errors.Is(err, exec.ErrOutOfMemory) {
			t.Errorf("allocation %d of host memory: error %v, expected %v", hosts, err, exec.ErrOutOfMemory)
		}
	}
	if hosts < 4 {
		t.Errorf("%d allocations of host memory were refused, expected 3 or more", hosts-1)
	}
	driver := &flaky{virtual.New(virtual.Config{}), 1, nil}
	e, err := exec.Open(res.Plan, f, exec.Options{Driver: driver})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := exec.NewSession(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Feed(t.Context(), []int32{1}); !errors.Is(err, errRefused) || errors.Is(err, exec.ErrOutOfMemory) {
		t.Errorf("error %v, expected %v and not %v", err, errRefused, exec.ErrOutOfMemory)
	}
}
