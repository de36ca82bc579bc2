package cpu

// Align is the alignment of memory in bytes: a cache line, and the widest vector.
const Align = 64

// A Memory is a range of zeroed bytes, aligned to Align, outside the Go heap where the system
// can map it.
type Memory struct {
	Data []byte
	free func() error
}

// Free gives the memory back. No view of it may be used afterwards.
func (m *Memory) Free() error {
	if m.free == nil {
		return nil
	}
	free := m.free
	*m = Memory{}
	return free()
}
