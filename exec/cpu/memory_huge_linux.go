//go:build linux && !race

package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of the pages that one entry of the translation buffers covers on amd64, and
// on arm64 with small pages of 4 KiB.
const hugePage = 2 << 20

// AllocateHuge is Allocate for memory that is read from end to end again and again: it is aligned
// to huge pages, and the system is asked for them.
func AllocateHuge(size int) (*Memory, error) {
	if size < 0 || size > math.MaxInt-hugePage {
		return nil, fmt.Errorf("mapping %d bytes: expected 0 to %d", size, math.MaxInt-hugePage)
	}
	m, err := Allocate(size + hugePage)
	if err != nil {
		return nil, err
	}
	// An error would mean that pages are small: slower, and nothing else.
	_ = unix.Madvise(m.Data, unix.MADV_HUGEPAGE)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))) & (hugePage - 1)
	m.Data = m.Data[skip : skip+size : skip+size]
	return m, nil
}
