package cpu

import (
	"math"
	"strconv"
	"testing"
	"unsafe"
)

func TestAllocate(t *testing.T) {
	for _, size := range []int{0, 1, 63, 64, 4097, 1 << 20} {
		m, err := Allocate(size)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Data) != size || uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))%Align != 0 {
			t.Errorf("%d bytes: got %d at %p, expected a multiple of %d", size, len(m.Data), unsafe.SliceData(m.Data), Align)
		}
		for i := range m.Data {
			if m.Data[i] != 0 {
				t.Fatalf("%d bytes: byte %d is %d, expected 0", size, i, m.Data[i])
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
		return // all that can be addressed may well be there
	}
	if _, err := Allocate(math.MaxInt); err == nil {
		t.Errorf("%d bytes: no error", math.MaxInt)
	}
}
