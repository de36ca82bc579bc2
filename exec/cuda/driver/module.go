//go:build libcuda

package driver

import (
	"gorgonia.org/cu"

	"pesti/exec/cuda"
)

type module struct {
	device *device
	module cu.Module
	shared map[string]int // that its kernels may be launched with, above 0
}

type function struct {
	name     string
	function cu.Function
}

func (f *function) Name() string { return f.name }

func (d *device) Load(ptx []byte) (cuda.Module, error) {
	m := &module{device: d, shared: map[string]int{}}
	err := d.do("compiling a module", func() (err error) {
		m.module, err = load(ptx)
		return err
	})
	return m, err
}

func (m *module) Function(name string, shared int) (cuda.Function, error) {
	f := &function{name: name}
	err := m.device.do("kernel "+name, func() (err error) {
		if f.function, err = m.module.Function(name); err != nil || shared <= m.shared[name] {
			return err
		}
		if err = allowShared(f.function, shared); err == nil {
			m.shared[name] = shared
		}
		return err
	})
	return f, err
}

func (m *module) Unload() error { return m.device.do("unloading a module", m.module.Unload) }
