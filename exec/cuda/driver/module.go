//go:build libcuda

package driver

import (
	"gorgonia.org/cu"

	"pesti/exec/cuda"
)

type module struct {
	device    *device
	module    cu.Module
	functions map[string]*function // that were requested
}

type function struct {
	name     string
	function cu.Function
	shared   int // largest dynamic shared memory in bytes that it may be launched with
}

func (f *function) Name() string { return f.name }

func (d *device) Load(ptx []byte) (cuda.Module, error) {
	m := &module{device: d, functions: map[string]*function{}}
	err := d.do("compiling a module", func() (err error) {
		m.module, err = load(ptx)
		return err
	})
	return m, err
}

// Function looks up each kernel once. The limit of its shared memory is only ever increased.
func (m *module) Function(name string, shared int) (cuda.Function, error) {
	f := m.functions[name]
	err := m.device.do("kernel "+name, func() (err error) {
		if f == nil {
			f = &function{name: name}
			if f.function, err = m.module.Function(name); err != nil {
				return err
			}
			m.functions[name] = f
		}
		if shared <= f.shared {
			return nil
		}
		if err = allowShared(f.function, shared); err == nil {
			f.shared = shared
		}
		return err
	})
	return f, err
}

func (m *module) Unload() error { return m.device.do("unloading a module", m.module.Unload) }
