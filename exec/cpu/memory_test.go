package cpu

import (
	"math"
	"strconv"
	"testing"
	"unsafe"
)

func TestAllocate(t *testing.T) {
	for name, allocate := range map[string]func(int) (*Memory, error){"plain": Allocate, "huge": AllocateHuge} {
		for _, size := range []int{0, 1, 63, 64, 4097, 1 << 20} {
			m, err := allocate(size)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Data) != size || uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))%Align != 0 {
				t.Errorf("%s, %d bytes: got %d at %p, expected a multiple of %d", name, size, len(m.Data), unsafe.SliceData(m.Data), Align)
			}
			for i := range m.Data {
				if m.Data[i] != 0 {
					t.Fatalf("%s, %d bytes: byte %d is %d, expected 0", name, size, i, m.Data[i])
				}
				m.Data[i] = 1
			}
			for range 2 { // the second time does nothing
				if err := m.Free(); err != nil {
					t.Error(err)
				}
			}
		}
		if strconv.IntSize < 64 {
			continue // all that can be addressed may well be there
		}
		for _, size := range []int{math.MaxInt, -1, math.MinInt} {
			if _, err := allocate(size); err == nil {
				t.Errorf("%s, %d bytes: no error", name, size)
			}
		}
	}
}
