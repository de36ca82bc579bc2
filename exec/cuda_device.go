package exec

import (
	"errors"
	"fmt"

	"pesti/exec/cuda"
	"pesti/exec/cuda/kernels"
	"pesti/exec/plan"
)

// A cudaDevice is one of the CUDA devices that a plan runs on, with the plan's memory on it.
type cudaDevice struct {
	cuda.Device // nil before it is open

	backend *cudaBackend
	index   int // in the plan
	set     kernels.Set
	stream  cuda.Stream

	arena   cuda.Ptr
	shared  []cuda.Ptr // by ID of the buffers that all programs share; 0 if the buffer is on another device
	inputs  cuda.Ptr
	weights map[string]cuda.Address // by name

	modules   map[string]cuda.Module // by name
	functions map[string]function    // by kernel

	memory []cuda.Ptr // to be freed
	pinned [][]byte
}

// A function is a kernel with the largest dynamic shared memory that it may be launched with.
type function struct {
	cuda.Function
	shared int
}

// open opens the device with an ordinal and checks that it can run the plan.
func (c *cudaDevice) open(number int) (err error) {
	driver := c.backend.driver
	if c.Device, err = driver.Open(number); err != nil {
		return err
	}
	has := c.Properties()
	if c.set, err = kernels.Lookup(c.backend.engine.plan.Target.ISA, driver.Version(), has.Major, has.Minor); err != nil {
		return fmt.Errorf("plan: %s: %w; compile the model again for the instruction set of the device, or an earlier one", has.Name, err)
	}
	if err := c.checkFit(has); err != nil {
		return err
	}
	c.stream, err = c.NewStream()
	return err
}

// bindStep returns a step with the addresses of its operands.
func (c *cudaDevice) bindStep(g *plan.Program, st *plan.Step) *cuda.Binding {
	scope := c.backend.engine.plan.Scope(g)
	b := &cuda.Binding{Step: st, Operands: make(map[string]cuda.Address, len(st.Args)), SeqPages: int(scope.P), On: c.Properties()}
	for _, a := range st.Args {
		if a.Weight != "" {
			w := c.weights[a.Weight]
			w.Kernel = a.Kernel
			b.Operands[a.Role] = w
			continue
		}
		format, at := c.addressOf(g, a.Buffer)
		b.Operands[a.Role] = cuda.Address{Ptr: at, Format: format}
	}
	if st.Scratch >= 0 {
		_, b.Scratch = c.addressOf(g, st.Scratch)
	}
	return b
}

// addressOf returns the format and the address of a buffer.
func (c *cudaDevice) addressOf(g *plan.Program, id int) (string, cuda.Ptr) {
	b := c.backend.engine.plan.Buffer(g, id)
	if id < len(c.shared) {
		return b.Format, c.shared[id]
	}
	return b.Format, c.arena + cuda.Ptr(b.Offset)
}

// loadFor loads the kernels of a step for all numbers of rows that use different kernels.
func (c *cudaDevice) loadFor(st *deviceStep, g *plan.Program) error {
	most := int(g.MaxT)
	if st.Rows == "R" {
		most = int(g.MaxR)
	}
	for _, m := range []int{1, 2, 4, graphTokens, graphTokens + 1, most} {
		if m > most {
			continue
		}
		calls, err := st.binding.Calls(m)
		if err != nil {
			return err
		}
		for _, call := range calls {
			if _, err := c.function(call.Kernel, call.Shared); err != nil {
				return err
			}
		}
	}
	return nil
}

// function returns a kernel that may be launched with shared bytes of dynamic shared memory.
func (c *cudaDevice) function(name string, shared int) (cuda.Function, error) {
	if f, ok := c.functions[name]; ok && f.shared >= shared {
		return f.Function, nil
	}
	file, ptx, err := c.set.Module(name)
	if err != nil {
		return nil, err
	}
	m, ok := c.modules[file]
	if !ok {
		if m, err = c.Load(ptx); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		c.modules[file] = m
	}
	f, err := m.Function(name, shared)
	if err != nil {
		return nil, err
	}
	c.functions[name] = function{f, shared}
	return f, nil
}

// free frees everything but the device itself.
func (c *cudaDevice) free() error {
	if c == nil || c.Device == nil {
		return nil
	}
	var errs []error
	if c.stream != nil {
		errs = append(errs, c.stream.Close())
	}
	for _, m := range c.modules {
		errs = append(errs, m.Unload())
	}
	for _, p := range c.memory {
		errs = append(errs, c.Free(p))
	}
	for _, b := range c.pinned {
		errs = append(errs, c.FreeHost(b))
	}
	return errors.Join(errs...)
}

// close closes the device.
func (c *cudaDevice) close() error {
	if c == nil || c.Device == nil {
		return nil
	}
	return c.Close()
}
