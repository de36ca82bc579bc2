package main

import (
	"slices"
	"strings"
	"testing"

	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
)

// failing returns the names of the rules that a device breaks.
func failing(d cuda.Device) (names []string, errs []string) {
	for _, c := range contract {
		if err := c.check(d, found{}); err != nil {
			names, errs = append(names, c.name), append(errs, err.Error())
		}
	}
	return names, errs
}

// small is the virtual device with little memory, so that requests for all of it are quick.
func small(t *testing.T) cuda.Device {
	t.Helper()
	p := virtual.Default()
	p.Memory = 64 << 20
	d, err := virtual.New(virtual.Config{Devices: []cuda.Properties{p}}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestContract(t *testing.T) {
	d := small(t)
	if names, errs := failing(d); names != nil {
		t.Errorf("the virtual device breaks the contract: %s", strings.Join(errs, "; "))
	}
	if err := checkTrap(d); err != nil {
		t.Error(err)
	}
}

// A faulty is a device with a fault.
type faulty struct {
	cuda.Device
	properties func(cuda.Properties) cuda.Properties
	alloc      func(int64) (cuda.Ptr, error)
	stream     func(cuda.Stream) cuda.Stream
	function   func(cuda.Module, string, int) (cuda.Function, error)
}

func (f *faulty) Properties() cuda.Properties {
	if f.properties != nil {
		return f.properties(f.Device.Properties())
	}
	return f.Device.Properties()
}

func (f *faulty) Alloc(n int64) (cuda.Ptr, error) {
	if f.alloc != nil {
		return f.alloc(n)
	}
	return f.Device.Alloc(n)
}

func (f *faulty) NewStream() (cuda.Stream, error) {
	s, err := f.Device.NewStream()
	if f.stream != nil {
		s = f.stream(s)
	}
	return s, err
}

func (f *faulty) Load(ptx []byte) (cuda.Module, error) {
	m, err := f.Device.Load(ptx)
	if err == nil && f.function != nil {
		return faultyModule{m, f.function}, nil
	}
	return m, err
}

type faultyModule struct {
	cuda.Module
	function func(cuda.Module, string, int) (cuda.Function, error)
}

func (m faultyModule) Function(name string, shared int) (cuda.Function, error) {
	return m.function(m.Module, name, shared)
}

// Streams with a fault.
type (
	changing   struct{ cuda.Stream } // changes a bit of a download
	unfilled   struct{ cuda.Stream } // does not fill the last byte
	flat       struct{ cuda.Stream } // ignores the third dimension
	eager      struct{ cuda.Stream } // runs launches while it captures them
	replaysTwo struct{ cuda.Stream }
)

func (s changing) Download(dst []byte, src cuda.Ptr) error {
	err := first(s.Stream.Download(dst, src), s.Stream.Wait())
	dst[len(dst)-1] ^= 4
	return err
}

func (s unfilled) Fill(dst cuda.Ptr, value byte, n int64) error {
	return s.Stream.Fill(dst, value, n-1)
}

func (s flat) Launch(l cuda.Launch) error {
	l.Grid.Z = 1
	return s.Stream.Launch(l)
}

func (s eager) Capture() error { return nil }
func (s eager) EndCapture() (cuda.Graph, error) {
	if err := s.Stream.Capture(); err != nil {
		return nil, err
	}
	return s.Stream.EndCapture()
}

func (s replaysTwo) Replay(g cuda.Graph) error { return first(s.Stream.Replay(g), s.Stream.Replay(g)) }

// Each fault must be found by the check of the rule that it breaks.
func TestFaults(t *testing.T) {
	for what, c := range map[string]struct {
		fault func(*faulty)
		want  string
	}{
		"old": {func(f *faulty) {
			f.properties = func(p cuda.Properties) cuda.Properties { p.Major, p.Minor = 7, 0; return p }
		}, "properties"},
		"more free than there is": {func(f *faulty) {
			f.properties = func(p cuda.Properties) cuda.Properties { p.Free = p.Memory + 1; return p }
		}, "properties"},
		"less shared memory than it says": {func(f *faulty) {
			f.properties = func(p cuda.Properties) cuda.Properties { p.Shared *= 2; return p }
		}, "shared memory"},
		"any shared memory": {func(f *faulty) {
			f.function = func(m cuda.Module, name string, shared int) (cuda.Function, error) {
				return m.Function(name, min(shared, f.Device.Properties().Shared))
			}
		}, "shared memory"},
		"any kernel": {func(f *faulty) {
			f.function = func(m cuda.Module, name string, shared int) (cuda.Function, error) {
				if name == "missing" {
					name = "add"
				}
				return m.Function(name, shared)
			}
		}, "modules"},
		"unaligned": {func(f *faulty) {
			f.alloc = func(n int64) (cuda.Ptr, error) { p, err := f.Device.Alloc(n + 4); return p + 4, err }
		}, "memory"},
		"boundless": {func(f *faulty) {
			f.alloc = func(n int64) (cuda.Ptr, error) { return f.Device.Alloc(min(n, 32<<20)) }
		}, "too much memory"},
		"changes bytes": {func(f *faulty) { f.stream = func(s cuda.Stream) cuda.Stream { return changing{s} } }, "memory"},
		"fills too few": {func(f *faulty) { f.stream = func(s cuda.Stream) cuda.Stream { return unfilled{s} } }, "memory"},
		"flat grids":    {func(f *faulty) { f.stream = func(s cuda.Stream) cuda.Stream { return flat{s} } }, "launches"},
		"captures late": {func(f *faulty) { f.stream = func(s cuda.Stream) cuda.Stream { return eager{s} } }, "graphs"},
		"replays twice": {func(f *faulty) { f.stream = func(s cuda.Stream) cuda.Stream { return replaysTwo{s} } }, "graphs"},
	} {
		f := &faulty{Device: small(t)}
		c.fault(f)
		if names, _ := failing(f); !slices.Contains(names, c.want) {
			t.Errorf("%s: breaks %q, expected %q among them", what, names, c.want)
		}
		f.Device.Close()
	}
}
