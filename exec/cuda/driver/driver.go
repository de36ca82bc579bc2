//go:build libcuda

// Package driver implements the driver interface of package exec/cuda with libcuda.
//
// It calls libcuda through functions of gorgonia.org/cu, and through cgo in native.go for what that
// package lacks. It imports exec/cuda and exec/plan. A program that imports it needs cgo and does not
// start on a machine without libcuda; the package is therefore built only with the tag libcuda.
package driver

import (
	"fmt"

	"gorgonia.org/cu"

	"pesti/exec/cuda"
)

// driver has no state. The state of libcuda belongs to the process and is initialized at its start.
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

// describe returns the properties of a device without its free memory. That would need a context, which
// takes time and memory.
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
