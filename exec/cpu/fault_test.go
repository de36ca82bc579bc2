//go:build unix

package cpu

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"pesti/exec/cpu/kernel"
)

// TestFault truncates a mapped file while workers read it. The run returns an error whichever
// worker faults, and the machine stays usable.
func TestFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mapped")
	page := os.Getpagesize()
	if err := os.WriteFile(path, make([]byte, 2*page), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := unix.Mmap(int(f.Fd()), 0, 2*page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(data)
	if err := f.Truncate(int64(page)); err != nil {
		t.Fatal(err)
	}
	m := New(3)
	m.Mapped = func(addr uintptr) bool {
		at := addr - uintptr(unsafe.Pointer(&data[0]))
		return at < uintptr(len(data))
	}
	defer m.Close()
	for victim := range 3 {
		after := false
		s := make(Schedule, 3)
		var sum byte
		for w := range s {
			read := func(*kernel.Run) {}
			if w == victim {
				read = func(*kernel.Run) { sum += data[page] }
			}
			s[w] = [][]kernel.Func{{read}, {func(*kernel.Run) {
				if w == victim {
					after = true
				}
			}}}
		}
		if err := m.Run(nil, s, kernel.Run{}); !errors.Is(err, ErrFault) {
			t.Errorf("worker %d: error %v, expected %v", victim, err, ErrFault)
		}
		if after {
			t.Errorf("worker %d went on after its fault", victim)
		}
		ok := false
		fine := Schedule{{{func(*kernel.Run) { ok = true }}}, {nil}, {nil}}
		if err := m.Run(nil, fine, kernel.Run{}); err != nil || !ok {
			t.Errorf("the run after a fault: error %v, ran %v", err, ok)
		}
	}
}

// TestWildPointer checks that a write outside mapped files panics as a bug of the kernel, instead
// of returning an error.
func TestWildPointer(t *testing.T) {
	data, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(data)
	for name, mapped := range map[string]func(uintptr) bool{"no file": nil, "another file": func(uintptr) bool { return false }} {
		m := New(1)
		m.Mapped = mapped
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			err := m.Run(nil, Schedule{{{func(*kernel.Run) { data[0] = 1 }}}}, kernel.Run{})
			t.Errorf("%s: error %v, expected a panic", name, err)
		}()
		m.Close()
	}
}
