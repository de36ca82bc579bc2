package cpu

// Align is the alignment of memory in bytes: a cache line, which is also the widest vector.
const Align = 64

// A Memory is a range of zeroed bytes, aligned to Align. On Unix it is mapped outside of the Go heap.
type Memory struct {
	Data []byte
	free func() error
}

// Free frees the memory. Data must not be used afterwards.
func (m *Memory) Free() error {
	if m.free == nil {
		return nil
	}
	free := m.free
	*m = Memory{}
	return free()
}
