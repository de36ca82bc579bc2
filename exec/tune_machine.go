package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/gguf/numfmt"
)

// Shape of the products that TuneMachine measures: a sample is a product with n × k weights, and consecutive samples
// have other weights.
const (
	machineK       = 4096
	machineN       = 6144
	machineSamples = 4
)

// TuneMachine is Engine.Tune without a model: it measures products with weights of each type for which the kernels
// of an instruction set have several orders, with the given number of workers.
func TuneMachine(ctx context.Context, set string, threads int, limit time.Duration) (all []Tuned, err error) {
	sets, err := isa.UpTo(set)
	if err != nil {
		return nil, err
	}
	var layouts []kernel.Layout
	size := 0
	for _, l := range kernel.Layouts() {
		if kernel.ReadOrders(gemv(&l), sets) != nil {
			layouts, size = append(layouts, l), max(size, machineSamples*l.Size(machineN, machineK))
		}
	}
	if layouts == nil {
		return nil, nil
	}
	memory, err := cpu.AllocateHuge(size)
	if err != nil {
		return nil, &kindError{ErrOutOfMemory, fmt.Sprintf("weights to measure with: %v", err)}
	}
	for i := range memory.Data { // so that each page exists; every float16 in it is a normal number
		memory.Data[i] = 0x11
	}
	m := cpu.New(threads)
	defer func() {
		m.Close()
		err = errors.Join(err, memory.Free())
	}()
	e := &Engine{machine: m}
	if err := e.useReadOrders(nil); err != nil {
		return nil, err
	}
	end := time.Now().Add(limit)
	for _, l := range layouts {
		p, err := e.machineProducts(&l, memory.Data, sets)
		if err != nil {
			return all, err
		}
		t, err := e.tuneType(ctx, p, end, &usualLimits)
		if err != nil {
			return all, err
		}
		all = append(all, t)
	}
	return all, nil
}

// gemv returns the name of the kernel for one token and weights in a layout.
func gemv(l *kernel.Layout) string { return "gemv." + lowerName(l.Type) + "." + l.Name + ".q8x2" }

// machineProducts returns the products with weights in a layout, which lie in memory.
func (e *Engine) machineProducts(l *kernel.Layout, memory []byte, sets []string) (*tunedProducts, error) {
	said, _ := plan.LookupLayout(l.Name, lowerName(l.Type)) // a test compares the tables
	step := &plan.Step{
		Name: "tune", Kernel: "matmul_group", Rows: "T", Split: plan.Split{By: "rows", Unit: said.Rows},
		Params: []plan.Param{{Name: "k", Value: int64(machineK)}, {Name: "n0", Value: int64(machineN)}},
	}
	p := &tunedProducts{kind: l.Type, orders: kernel.ReadOrders(gemv(l), sets)}
	x, y := slices.Repeat([]byte{0x11}, numfmt.Q8x2Bytes(machineK)), make([]float32, machineN)
	out := kernel.Operand{Format: "f32", Data: floatBytes(y)}
	for i := range machineSamples {
		size := l.Size(machineN, machineK)
		w := kernel.Operand{Format: lowerName(l.Type), Kernel: gemv(l), Layout: l.Name, Data: memory[i*size : (i+1)*size]}
		st := tunedStep{bytes: int64(size), macs: machineN * machineK}
		for worker := range e.machine.Workers() {
			f, err := kernel.Bind(&kernel.Binding{
				Step: step, Operands: map[string]kernel.Operand{"x": {Format: "q8x2", Data: x}, "w0": w, "out0": out},
				Scratch: make([]byte, 40*machineK+24576), Worker: worker, Workers: e.machine.Workers(), Choices: &e.choices,
			}, sets)
			if err != nil {
				return nil, err
			}
			st.schedule = append(st.schedule, [][]kernel.Func{{f}})
		}
		p.steps = append(p.steps, st)
		p.bytes += st.bytes
	}
	return p, nil
}
