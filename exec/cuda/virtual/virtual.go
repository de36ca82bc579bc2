// Package virtual is a CUDA device in software. It interprets the same PTX that a GPU's driver compiles,
// and reports errors that a GPU does not detect: accesses outside of allocations, reads of memory that was
// never written, races of a block's threads in shared memory, and barriers that not all threads reach.
//
// It has the execution of PTX and the checks; package ptx has the syntax. It imports exec/cuda, whose
// interface it implements, and no other package of this module except ptx.
//
// It does not model time, races between blocks in global memory, or the error of .approx instructions
// (ex2, lg2, rcp, rsqrt, sin, cos, tanh): it rounds these correctly, while GPUs are allowed larger errors.
// NaN results have the host's bits. Atomics are executed one at a time. Blocks run in any order, on as many
// goroutines as there are processors.
package virtual

import (
	"fmt"

	"pesti/exec/cuda"
)

// A Config has the properties of a virtual driver.
type Config struct {
	Devices []cuda.Properties // empty means one Default device
	Version int               // CUDA version; 0 means 12090
	Workers int               // blocks that run concurrently; 0 means the number of processors, or 1 under the race detector
	Limit   int64             // instructions of a warp after which a kernel fails as an infinite loop; 0 means 2^34
}

// Default returns the properties of the default device. It has compute capability 8.9, so that every
// module runs.
func Default() cuda.Properties {
	return cuda.Properties{
		Name: "virtual device", Major: 8, Minor: 9, Memory: 8 << 30, SMs: 64, Shared: 99 << 10, L2: 32 << 20,
	}
}

// A Driver has virtual devices.
type Driver struct {
	config  Config
	memory  memory
	devices []*Device       // nil if not open
	done    <-chan struct{} // closed when streams have to skip their work
}

var _ cuda.Driver = (*Driver)(nil)
var _ cuda.Canceller = (*Driver)(nil)

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

// CancelOn implements cuda.Canceller.
func (d *Driver) CancelOn(done <-chan struct{}) { d.done = done }

// canceled reports whether streams have to skip their work.
func (d *Driver) canceled() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

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
