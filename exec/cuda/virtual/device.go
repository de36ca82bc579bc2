package virtual

import (
	"errors"
	"fmt"
	"unsafe"

	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual/ptx"
)

// A Device is a virtual device. It counts the work of its kernels.
type Device struct {
	driver     *Driver
	number     int
	properties cuda.Properties
	used       int64 // bytes
	peers      map[*Device]bool
	streams    []*stream
	hosts      map[*byte]int // memory of the host that is given out, by its first byte
	modules    map[*module]bool
	events     int
	graphs     int
	err        error // of a kernel that trapped
	skipped    bool  // whether work was skipped since a stream last waited
	closed     bool
	counters   map[string]*cuda.Counts
}

var (
	_ cuda.Device   = (*Device)(nil)
	_ cuda.Counting = (*Device)(nil)

	errClosed = errors.New("virtual device: closed")
)

// usable returns the error that all calls must return, if there is one.
func (d *Device) usable() error {
	if d.closed {
		return errClosed
	}
	return d.err
}

// Properties implements cuda.Device.
func (d *Device) Properties() cuda.Properties {
	p := d.properties
	p.Free = p.Memory - d.used
	return p
}

// Alloc implements cuda.Device.
func (d *Device) Alloc(bytes int64) (cuda.Ptr, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	if bytes < 1 {
		return 0, fmt.Errorf("virtual device: %d bytes of memory", bytes)
	}
	if bytes > windowMost || bytes > d.properties.Memory-d.used {
		return 0, fmt.Errorf("virtual device: %w: %d bytes are wanted, %d of %d are free", cuda.ErrOutOfMemory,
			bytes, d.properties.Memory-d.used, d.properties.Memory)
	}
	d.used += bytes
	return cuda.Ptr(d.driver.memory.place(d, uint64(bytes)).base), nil
}

// Free implements cuda.Device. It waits for the streams.
func (d *Device) Free(p cuda.Ptr) error {
	if d.closed {
		return errClosed
	}
	if err := d.drain(); err != nil {
		return err
	}
	if a := d.driver.memory.at(uint64(p)); a != nil && a.device != d {
		return fmt.Errorf("virtual device: freeing memory of another device")
	}
	return d.driver.memory.free(p)
}

// AllocHost implements cuda.Device.
func (d *Device) AllocHost(bytes int) ([]byte, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	if bytes < 1 {
		return nil, fmt.Errorf("virtual device: %d bytes of host memory", bytes)
	}
	b := make([]byte, bytes)
	if d.hosts == nil {
		d.hosts = map[*byte]int{}
	}
	d.hosts[unsafe.SliceData(b)] = bytes
	return b, nil
}

// FreeHost implements cuda.Device. It waits for the streams.
func (d *Device) FreeHost(b []byte) error {
	if d.closed {
		return errClosed
	}
	if err := d.drain(); err != nil {
		return err
	}
	if _, ok := d.hosts[unsafe.SliceData(b)]; !ok {
		return fmt.Errorf("virtual device: freeing host memory that AllocHost did not return")
	}
	delete(d.hosts, unsafe.SliceData(b))
	return nil
}

// drain executes all pending operations of streams.
func (d *Device) drain() error {
	for _, s := range d.streams {
		s.drain(len(s.queue))
	}
	return d.err
}

// EnablePeer implements cuda.Device.
func (d *Device) EnablePeer(other cuda.Device) error {
	if err := d.usable(); err != nil {
		return err
	}
	o, ok := other.(*Device)
	if !ok || o.driver != d.driver || o == d {
		return fmt.Errorf("virtual device: enabling peer access: expected another device of the same driver")
	}
	d.peers[o] = true
	return nil
}

// reaches reports whether kernels and copies of a device may access the memory of another device.
func (d *Device) reaches(other *Device) bool { return d == other || d.peers[other] }

// Close implements cuda.Device. It frees everything, and returns an error that lists what had not been
// freed, unless a kernel trapped: then it was impossible to free it.
func (d *Device) Close() error {
	if d.closed {
		return errClosed
	}
	d.drain()
	leaks := leaks{}
	var bytes uint64
	blocks := 0
	for _, a := range d.driver.memory.allocations {
		if a == nil || a.device != d || a.data == nil {
			continue
		}
		if !d.owned(a) {
			blocks++
			bytes += a.bytes
		}
		a.release()
	}
	if blocks > 0 {
		leaks.add(blocks, fmt.Sprintf("allocations of %d bytes", bytes))
	}
	leaks.add(len(d.hosts), "allocations of host memory")
	leaks.add(len(d.modules), "modules")
	leaks.add(len(d.streams), "streams")
	leaks.add(d.events, "events")
	leaks.add(d.graphs, "graphs")
	d.closed = true
	d.streams, d.hosts, d.modules = nil, nil, nil
	d.driver.devices[d.number] = nil
	if d.err != nil {
		return nil
	}
	return leaks.err()
}

// owned reports whether an allocation belongs to a module, which frees it.
func (d *Device) owned(a *allocation) bool {
	for m := range d.modules {
		for _, v := range m.variables {
			if v == a {
				return true
			}
		}
	}
	return false
}

// leaks lists what had not been freed when the device was closed.
type leaks []string

func (l *leaks) add(n int, what string) {
	if n > 0 {
		*l = append(*l, fmt.Sprintf("%d %s", n, what))
	}
}

func (l leaks) err() error {
	if len(l) == 0 {
		return nil
	}
	text := l[0]
	for _, s := range l[1:] {
		text += ", " + s
	}
	return fmt.Errorf("virtual device: closed with %s not freed", text)
}

// A module's functions are compiled when it is loaded.
type module struct {
	device    *Device
	programs  map[string]*program
	variables map[string]*allocation
}

// Load implements cuda.Device.
func (d *Device) Load(text []byte) (cuda.Module, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	parsed, err := ptx.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("virtual device: %w", err)
	}
	if err := d.runs(parsed); err != nil {
		return nil, err
	}
	m := &module{device: d, programs: map[string]*program{}, variables: map[string]*allocation{}}
	addresses := map[string]uint64{}
	for _, v := range parsed.Variables {
		if int64(v.Size) > d.properties.Memory-d.used {
			m.Unload()
			return nil, fmt.Errorf("virtual device: %w for %s", cuda.ErrOutOfMemory, v.Name)
		}
		d.used += int64(v.Size)
		a := d.driver.memory.place(d, uint64(v.Size))
		a.init = nil // initialized, with zeros by default
		copy(a.data, v.Data)
		m.variables[v.Name] = a
		addresses[v.Name] = a.base
	}
	for _, k := range parsed.Kernels {
		p, err := compile(k, addresses)
		if err != nil {
			m.Unload()
			return nil, fmt.Errorf("virtual device: kernel %s: %w", k.Name, err)
		}
		m.programs[k.Name] = p
	}
	if d.modules == nil {
		d.modules = map[*module]bool{}
	}
	d.modules[m] = true
	return m, nil
}

// runs checks that the device and the driver support a module's target and PTX version.
func (d *Device) runs(m *ptx.Module) error {
	var number int
	if _, err := fmt.Sscanf(m.Target, "sm_%d", &number); err != nil {
		return fmt.Errorf("virtual device: target %s", m.Target)
	}
	if own := d.properties.Major*10 + d.properties.Minor; number > own {
		return fmt.Errorf("virtual device: PTX for sm_%d cannot run on this device, which is sm_%d", number, own)
	}
	var major, minor int
	if _, err := fmt.Sscanf(m.Version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("virtual device: PTX version %s", m.Version)
	}
	// PTX 7.n came with CUDA 11.n, and 8.n with 12.n.
	if toolkit := (major+4)*1000 + minor*10; toolkit > d.driver.config.Version {
		return fmt.Errorf("virtual device: PTX %s needs a driver for CUDA %d.%d, and this one is for %d.%d", m.Version,
			major+4, minor, d.driver.config.Version/1000, d.driver.config.Version%1000/10)
	}
	return nil
}

// Function implements cuda.Module.
func (m *module) Function(name string, shared int) (cuda.Function, error) {
	if err := m.device.usable(); err != nil {
		return nil, err
	}
	p := m.programs[name]
	if p == nil {
		return nil, fmt.Errorf("virtual device: the module has no kernel %s", name)
	}
	if total := p.shared + shared; shared < 0 || total > m.device.properties.Shared {
		return nil, fmt.Errorf("virtual device: kernel %s with %d bytes of shared memory; a block may have %d", name, total, m.device.properties.Shared)
	}
	return &function{m, p, shared}, nil
}

// Unload implements cuda.Module. It waits for the streams.
func (m *module) Unload() error {
	if m.device.closed {
		return errClosed
	}
	err := m.device.drain()
	for _, v := range m.variables {
		v.release()
	}
	m.variables = nil
	m.programs = nil
	delete(m.device.modules, m)
	return err
}

type function struct {
	module  *module
	program *program
	shared  int // largest dynamic shared memory in bytes
}

func (f *function) Name() string { return f.program.name }
