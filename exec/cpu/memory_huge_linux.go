//go:build linux && !race

package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of huge pages on amd64, and on arm64 with a page size of 4 KiB.
const hugePage = 2 << 20

// AllocateHuge is Allocate with transparent huge pages, for large memory that is read sequentially many
// times.
func AllocateHuge(size int) (*Memory, error) {
	if size < 0 || size > math.MaxInt-hugePage {
		return nil, fmt.Errorf("mapping %d bytes: expected 0 to %d", size, math.MaxInt-hugePage)
	}
	m, err := Allocate(size + hugePage)
	if err != nil {
		return nil, err
	}
	// An error only means that pages are small, which is slower.
	_ = unix.Madvise(m.Data, unix.MADV_HUGEPAGE)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))) & (hugePage - 1)
	m.Data = m.Data[skip : skip+size : skip+size]
	return m, nil
}
