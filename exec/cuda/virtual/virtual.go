// Package virtual is a CUDA device in software: it runs the very PTX that a GPU's driver compiles,
// and reports what a GPU does not: memory that is not a kernel's, or was never written, threads of
// a block that race in shared memory, barriers that not all threads reach.
//
// It owns the execution of PTX and the checks; package ptx owns its syntax. It imports exec/cuda,
// whose interface it implements, and nothing else of this module.
//
// What it does not show: time, races between blocks in global memory, and the bits of the .approx
// instructions, for which it gives the nearest number (ex2, lg2, rcp, rsqrt, sin, cos, tanh) where
// GPUs are allowed more error. NaN results have the host's bits. Atomics are performed one after the
// other; blocks run in any order on as many goroutines as there are processors.
package virtual

import (
	"errors"
	"fmt"
	"sync/atomic"

	"pesti/exec/cuda"
)

// A Config tells what a driver offers.
type Config struct {
	Devices []cuda.Properties // none is one device of the Default kind
	Version int               // of CUDA; 0 is 12090
	Workers int               // blocks that run at the same time; 0 is the number of processors, and 1 under the race detector
	Limit   int64             // instructions of a warp after which a kernel is taken to run forever; 0 is 2^34
}

// Default is what a device is where nothing else is said: compute capability 8.9, so that every module runs.
func Default() cuda.Properties {
	return cuda.Properties{
		Name: "virtual device", Major: 8, Minor: 9, Memory: 8 << 30, SMs: 64, Shared: 99 << 10, L2: 32 << 20,
	}
}

// A Driver has virtual devices.
type Driver struct {
	config  Config
	memory  memory
	devices []*Device // nil where one is not open
	stopped atomic.Bool
}

var _ cuda.Driver = (*Driver)(nil)

// New returns a driver.
func New(c Config) *Driver {
	if len(c.Devices) == 0 {
		c.Devices = []cuda.Properties{Default()}
	}
	if c.Version == 0 {
		c.Version = 12090
	}
	if c.Workers <= 0 {
		c.Workers = defaultWorkers()
	}
	if c.Limit <= 0 {
		c.Limit = 1 << 34
	}
	return &Driver{config: c, devices: make([]*Device, len(c.Devices))}
}

// ErrInterrupted is what a kernel fails with that Interrupt ends.
var ErrInterrupted = errors.New("virtual device: interrupted")

// Interrupt makes the kernels that run, and all later ones, fail. It may be called at any time from
// any goroutine.
func (d *Driver) Interrupt() { d.stopped.Store(true) }

// Version implements cuda.Driver.
func (d *Driver) Version() int { return d.config.Version }

// Devices implements cuda.Driver.
func (d *Driver) Devices() ([]cuda.Properties, error) {
	list := make([]cuda.Properties, len(d.config.Devices))
	for i, p := range d.config.Devices {
		p.Free = p.Memory
		if open := d.devices[i]; open != nil {
			p.Free -= open.used
		}
		list[i] = p
	}
	return list, nil
}

// Open implements cuda.Driver.
func (d *Driver) Open(device int) (cuda.Device, error) {
	if device < 0 || device >= len(d.devices) {
		return nil, fmt.Errorf("virtual device: there is no device %d; there are %d", device, len(d.devices))
	}
	if d.devices[device] != nil {
		return nil, fmt.Errorf("virtual device: device %d is open already", device)
	}
	dev := &Device{driver: d, number: device, properties: d.config.Devices[device], peers: map[*Device]bool{}}
	d.devices[device] = dev
	return dev, nil
}
