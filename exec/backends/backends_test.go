package backends

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
)

// TestISA compiles for the least of the devices that a plan is to run on.
func TestISA(t *testing.T) {
	newer, older := virtual.Default(), virtual.Default()
	newer.Major, newer.Minor, older.Major, older.Minor = 9, 0, 7, 5
	driver := virtual.New(virtual.Config{Devices: []cuda.Properties{newer, older}})
	for _, c := range []struct {
		numbers []int
		isa     string
	}{{[]int{0}, "sm_89"}, {[]int{1}, "sm_75"}, {[]int{0, 1}, "sm_75"}, {[]int{1, 0}, "sm_75"}} {
		if isa, err := ISA(driver, c.numbers); err != nil || isa != c.isa {
			t.Errorf("devices %v: %q, %v; expected %s", c.numbers, isa, err, c.isa)
		}
	}
	for want, numbers := range map[string][]int{"no device 2, expected a number below 2": {0, 2}, "no device -1": {-1}, "no device numbers": nil} {
		if _, err := ISA(driver, numbers); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("devices %v: error %v, expected one with %q", numbers, err, want)
		}
	}
}

// TestOpen: every name opens a driver, or says that the build has none.
func TestOpen(t *testing.T) {
	for _, name := range Names() {
		driver, err := Open(name, 2)
		if name == CUDA && errors.Is(err, ErrNotBuilt) {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if lines, err := Describe(driver); name == Virtual && (err != nil || len(lines) != 2 || !strings.HasPrefix(lines[1], "1: virtual device, sm_89, ")) {
			t.Errorf("%s: %q, %v", name, lines, err)
		}
	}
	for _, c := range []struct {
		name    string
		devices int
	}{{"", 1}, {"vulkan", 1}, {Virtual, 0}, {Virtual, -1}, {Virtual, MaxVirtual + 1}} {
		if _, err := Open(c.name, c.devices); err == nil {
			t.Errorf("%d devices of driver %q: no error", c.devices, c.name)
		}
	}
	if !slices.Contains(Names(), Virtual) {
		t.Errorf("drivers are %q", Names())
	}
}
