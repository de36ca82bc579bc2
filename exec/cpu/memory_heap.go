//go:build !unix || race

package cpu

import (
	"fmt"
	"math"
	"unsafe"
)

// most is the largest size that Allocate accepts: make would end the process for a larger one.
const most = min(1<<40, math.MaxInt-Align)

// Allocate allocates size bytes in the Go heap, because the race detector ignores mapped memory.
func Allocate(size int) (*Memory, error) {
	if size < 0 || size > most {
		return nil, fmt.Errorf("allocating %d bytes: expected at most %d", size, most)
	}
	data := make([]byte, size+Align)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(data)))) & (Align - 1)
	return &Memory{Data: data[skip : skip+size : skip+size]}, nil
}
