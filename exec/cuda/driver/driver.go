//go:build libcuda

// Package driver is the CUDA driver of the machine, behind the interface of package exec/cuda.
//
// It owns the calls to libcuda: those that gorgonia.org/cu has through its free functions, the
// others in native.go. It imports exec/cuda and exec/plan. A program with it in it needs cgo, and
// does not start where there is no libcuda, so that only a build with the tag libcuda has it.
package driver

import (
	"fmt"

	"gorgonia.org/cu"

	"pesti/exec/cuda"
)

// driver has no state: libcuda's is the process's, and is made when that starts.
type driver struct{}

// New returns the driver.
func New() cuda.Driver { return driver{} }

func (driver) Version() int { return cu.Version() }

func (driver) Devices() ([]cuda.Properties, error) {
	n, err := cu.NumDevices()
	if err != nil {
		return nil, failed("counting devices", err)
	}
	all := make([]cuda.Properties, n)
	for i := range all {
		d, err := cu.GetDevice(i)
		if err == nil {
			all[i], err = describe(d)
		}
		if err != nil {
			return nil, failed("reading properties", err)
		}
	}
	return all, nil
}

func (driver) Open(number int) (cuda.Device, error) {
	n, err := cu.NumDevices()
	if err != nil {
		return nil, failed("counting devices", err)
	}
	if number < 0 || number >= n {
		return nil, fmt.Errorf("there is no such device, expected a number from 0 to %d", n-1)
	}
	return open(number)
}

// describe returns the properties of a device, but for how much memory is free: that takes a context,
// and so some of the memory and of the user's time.
func describe(d cu.Device) (cuda.Properties, error) {
	name, err := d.Name()
	if err != nil {
		return cuda.Properties{}, err
	}
	memory, err := d.TotalMem()
	if err != nil {
		return cuda.Properties{}, err
	}
	p := cuda.Properties{Name: name, Memory: memory}
	var kilohertz, bits int
	for _, a := range []struct {
		to        *int
		attribute cu.DeviceAttribute
	}{
		{&p.Major, cu.ComputeCapabilityMajor},
		{&p.Minor, cu.ComputeCapabilityMinor},
		{&p.SMs, cu.MultiprocessorCount},
		{&p.Shared, maxSharedOptIn},
		{&p.L2, cu.L2CacheSize},
		{&kilohertz, cu.MemoryClockRate},
		{&bits, cu.GlobalMemoryBusWidth},
	} {
		if *a.to, err = d.Attribute(a.attribute); err != nil {
			return cuda.Properties{}, err
		}
	}
	p.Bandwidth = 2 * int64(kilohertz) * 1000 * int64(bits) / 8 // two transfers each cycle
	return p, nil
}
