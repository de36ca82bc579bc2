package exec_test

import (
	"errors"
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
