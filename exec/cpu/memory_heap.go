//go:build !unix || race

package cpu

import (
	"fmt"
	"math"
	"unsafe"
)

// maxSize is the largest size that Allocate accepts: make would end the process for a larger one.
const maxSize = min(1<<40, math.MaxInt-Align)

// Allocate allocates size bytes in the Go heap, because the race detector ignores mapped memory.
func Allocate(size int) (*Memory, error) {
	if size < 0 || size > maxSize {
		return nil, fmt.Errorf("allocating %d bytes: expected at most %d", size, maxSize)
	}
	data := make([]byte, size+Align)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(data)))) & (Align - 1)
	return &Memory{Data: data[skip : skip+size : skip+size]}, nil
}
