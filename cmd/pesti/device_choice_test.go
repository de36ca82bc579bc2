package main

import (
	"strings"
	"testing"

	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
)

// TestDeviceSet checks that a plan for several devices is compiled for the instruction set that all of them have.
func TestDeviceSet(t *testing.T) {
	newer, older := virtual.Default(), virtual.Default()
	newer.Major, newer.Minor, older.Major, older.Minor = 9, 0, 7, 5
	driver := virtual.New(virtual.Config{Devices: []cuda.Properties{newer, older}})
	on := device{word: "virtual"}
	for _, c := range []struct {
		numbers []int
		isa     string
	}{{[]int{0}, "sm_89"}, {[]int{1}, "sm_75"}, {[]int{0, 1}, "sm_75"}, {[]int{1, 0}, "sm_75"}} {
		if isa, err := on.setFor(driver, c.numbers); err != nil || isa != c.isa {
			t.Errorf("devices %v: %q, %v; expected %s", c.numbers, isa, err, c.isa)
		}
	}
	if _, err := on.setFor(driver, []int{0, 2}); err == nil || !strings.Contains(err.Error(), "no device 2, expected a number below 2") {
		t.Errorf("a device that is not there: %v", err)
	}
}

// TestVirtualNumber runs on virtual devices with numbers up to the largest allowed one.
func TestVirtualNumber(t *testing.T) {
	for device, want := range map[string]int{"virtual:0": 0, "virtual:3": 0, "virtual:64": exitUsage, "virtual:999999999999": exitUsage} {
		if r := pesti("run", "demo", "-p", "a", "-n", "1", "--temp", "0", "--device", device); r.code != want {
			t.Errorf("%s: exit code %d, expected %d: %s", device, r.code, want, r.err)
		}
	}
}
