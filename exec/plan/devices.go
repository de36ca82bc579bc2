package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Device is one of several devices of a plan. Each step runs on one device and all its operands
// are there, except the source of a transfer. Inputs are copied to all devices.
type Device struct {
	Backend string // "cpu", for the host of CUDA devices, or CUDA
	ISA     string
	Threads int    // at most
	Memory  Memory // of this device alone
}

// maxDevices bounds the number of devices. It exceeds what a machine has.
const maxDevices = 64

// NumDevices returns how many devices a plan is for, at least 1.
func (p *Plan) NumDevices() int { return max(len(p.Devices), 1) }

// HasHost reports whether the first device of a plan for CUDA is the host, which runs its steps
// with CPU kernels.
func (p *Plan) HasHost() bool { return p.Target.Backend == CUDA && p.Device(0).Backend != CUDA }

// NumGPUs returns how many CUDA devices a plan is for.
func (p *Plan) NumGPUs() int {
	if p.Target.Backend != CUDA {
		return 0
	}
	if p.HasHost() {
		return p.NumDevices() - 1
	}
	return p.NumDevices()
}

// Device returns the description of a device, whose number is below NumDevices.
func (p *Plan) Device(device int) Device {
	if len(p.Devices) == 0 {
		t := &p.Target
		return Device{t.Backend, t.ISA, t.Threads, p.Memory}
	}
	return p.Devices[device]
}

// Sum sets the Memory of the plan and of its devices: the given sums of the arenas plus weights and
// shared buffers.
func (p *Plan) Sum(arenas []Memory) error {
	var all Memory
	for d := range arenas {
		m := &arenas[d]
		if err := p.sumShared(d, m); err != nil {
			return err
		}
		if err := all.add(m); err != nil {
			return err
		}
		if len(p.Devices) > 0 {
			p.Devices[d].Memory = *m
		}
	}
	p.Memory = all
	return nil
}

// sumShared adds the bytes of a device's weights and shared buffers.
func (p *Plan) sumShared(device int, m *Memory) error {
	for i := range p.Weights {
		w := &p.Weights[i]
		if !w.LiesOn(device) {
			continue
		}
		if err := first(add(&m.Weight, w.Size), add(&m.Packed, w.Packed)); err != nil {
			return err
		}
	}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Device != device && inputOf(b) == nil {
			continue
		}
		if err := add(m.of(b.Class), b.Size); err != nil {
			return err
		}
	}
	return nil
}

// add adds the sums of another device.
func (m *Memory) add(o *Memory) error {
	to := m.fields()
	for k, f := range o.fields() {
		if err := add(to[k].bytes, *f.bytes); err != nil {
			return err
		}
	}
	return nil
}

// LiesOn reports whether a weight is on a device.
func (w *Weight) LiesOn(device int) bool {
	if len(w.Devices) == 0 {
		return device == 0
	}
	return slices.Contains(w.Devices, device)
}

// DeviceIDs returns the devices that have a weight.
func (w *Weight) DeviceIDs() []int {
	if len(w.Devices) == 0 {
		return []int{0}
	}
	return w.Devices
}

// IsTransfer reports whether a kernel copies a value from one device to another.
func IsTransfer(kernel string) bool { return kernel == transfer.Name }

// transfer computes y[m] = x[m]. It is the only kernel that reads a buffer of another device.
var transfer = Signature{
	Name: "transfer",
	Operands: []Operand{
		{Role: "x", Formats: []string{"f32"}, Extent: "M*n", Far: true},
		{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
	},
	Params: []ParamSpec{count("n")},
	Splits: []string{"one"},
	cost:   costModel{flops: "0"},
}

// onDevice returns the device field of the text form, which is left out for device 0.
func onDevice(device int) string {
	if device == 0 {
		return ""
	}
	return "on " + strconv.Itoa(device)
}

func onDevices(devices []int) string {
	if len(devices) == 0 {
		return ""
	}
	words := make([]string, len(devices))
	for i, d := range devices {
		words[i] = strconv.Itoa(d)
	}
	return "on " + strings.Join(words, ",")
}

// on parses an optional device field and returns the device's number, 0 without the field.
func (s *scanner) on() int {
	if !s.maybe("on ") {
		return 0
	}
	return s.small()
}

// devices checks the plan's devices, and that every device number in the plan is one of theirs.
func (v *verifier) devices() error {
	p := v.plan
	if n := len(p.Devices); n == 1 || n > maxDevices {
		return fmt.Errorf("target: devices is %d, expected 2 to %d, or no such field", n, maxDevices)
	}
	for i := range p.Devices {
		if err := v.device(i); err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
	}
	for i := range p.Weights {
		w := &p.Weights[i]
		if !slices.IsSorted(w.Devices) || slices.Equal(w.Devices, []int{0}) {
			return fmt.Errorf("weight %s: is on %v, expected devices in ascending order, and no such field for device 0 alone", w.Name, w.Devices)
		}
		for k, d := range w.Devices {
			if k > 0 && d == w.Devices[k-1] {
				return fmt.Errorf("weight %s: is on device %d twice, expected once", w.Name, d)
			}
			if err := v.exists(d); err != nil {
				return fmt.Errorf("weight %s: %w", w.Name, err)
			}
		}
	}
	return nil
}

func (v *verifier) device(i int) error {
	d, t := &v.plan.Devices[i], &v.plan.Target
	switch {
	case t.Backend != CUDA:
		return fmt.Errorf("backend of the target is %q, expected %q for a plan with several devices", t.Backend, CUDA)
	case d.Backend == CUDA && (d.ISA != t.ISA || d.Threads != t.Threads):
		return fmt.Errorf("is %s with threads %d, expected %s with %d as the target says", d.ISA, d.Threads, t.ISA, t.Threads)
	case d.Backend == CUDA:
		return nil
	case i > 0:
		return fmt.Errorf("backend is %q, expected %q: the host is the first device", d.Backend, CUDA)
	}
	return first(
		oneOf("backend", d.Backend, "cpu", CUDA),
		oneOf("instruction set", d.ISA, ISAs...),
		atLeast("threads", int64(d.Threads), 1),
		atMost("threads", int64(d.Threads), MaxThreads),
	)
}

// exists checks the number of a device.
func (v *verifier) exists(device int) error {
	if n := v.plan.NumDevices(); device < 0 || device >= n {
		return fmt.Errorf("is on device %d, expected one from 0 to %d", device, n-1)
	}
	return nil
}
