// Package backends is the table of the CUDA drivers that a program can run plans on: the virtual device,
// which every build has, and the driver of NVIDIA's GPUs, which a build with the tag libcuda has.
//
// It owns their names and nothing else. It imports exec/cuda, exec/cuda/kernels, exec/cuda/virtual and,
// with the tag, exec/cuda/driver. The command line and programs that let their user choose a device
// import it.
package backends

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"pesti/exec/cuda"
	"pesti/exec/cuda/kernels"
	"pesti/exec/cuda/virtual"
	"pesti/exec/plan"
)

// A Driver opens devices: see cuda.Driver.
type Driver = cuda.Driver

// ErrNotBuilt is the error of a driver that this build does not contain.
var ErrNotBuilt = errors.New("this build has no driver for CUDA devices; expected one with the build tag libcuda")

// Names of the drivers.
const (
	Virtual = "virtual"
	CUDA    = "cuda"
)

// MaxVirtual is the largest number of virtual devices.
const MaxVirtual = 64

// Names returns the names of all drivers.
func Names() []string { return []string{Virtual, CUDA} }

// Open returns the driver of a name. A virtual one has the given number of devices.
func Open(name string, devices int) (Driver, error) {
	switch name {
	case Virtual:
		if devices < 1 || devices > MaxVirtual {
			return nil, fmt.Errorf("%d virtual devices, expected 1 to %d", devices, MaxVirtual)
		}
		return virtual.New(virtual.Config{Devices: slices.Repeat([]cuda.Properties{virtual.Default()}, devices)}), nil
	case CUDA:
		return openCUDA()
	}
	return nil, fmt.Errorf("driver %q: expected one of %q", name, Names())
}

// ISA returns the best instruction set that has kernels and that the driver and all of its devices with these
// numbers support.
func ISA(driver Driver, numbers []int) (string, error) {
	found, err := driver.Devices()
	if err != nil {
		return "", err
	}
	if len(numbers) == 0 {
		return "", errors.New("found no device numbers, expected at least one")
	}
	var on []cuda.Properties
	for _, n := range numbers {
		if n < 0 || n >= len(found) {
			return "", fmt.Errorf("there is no device %d, expected a number below %d", n, len(found))
		}
		on = append(on, found[n])
	}
	least := slices.MinFunc(on, func(a, b cuda.Properties) int {
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
	set, err := kernels.For(driver.Version(), least.Major, least.Minor)
	if err != nil {
		return "", err
	}
	return set.ISA, nil
}

// Describe returns a line for each device of a driver.
func Describe(driver Driver) ([]string, error) {
	found, err := driver.Devices()
	if err != nil {
		return nil, err
	}
	version := driver.Version()
	var lines []string
	for i, p := range found {
		lines = append(lines, fmt.Sprintf("%d: %s, sm_%d%d, %s of memory, driver for CUDA %d.%d", i, p.Name,
			p.Major, p.Minor, plan.HumanBytes(p.Memory), version/1000, version%1000/10))
	}
	return lines, nil
}
