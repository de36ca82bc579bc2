package tiny

import (
	"maps"
	"slices"
)

// Add appends a vector of float32.
func (m *Model) Add(name string, data []float32) {
	m.Tensors = append(m.Tensors, Tensor{Name: name, Dims: []int64{int64(len(data))}, Data: data})
}

// Rope writes arch.rope.scaling.type, and numbers under arch.rope.scaling.
func (m *Model) Rope(arch, kind string, numbers map[string]float32) {
	m.Meta.SetStr(arch+".rope.scaling.type", kind)
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		m.Meta.SetFloat32(arch+".rope.scaling."+name, numbers[name])
	}
}
