//go:build !unix || race

package cpu

import (
	"fmt"
	"math"
	"unsafe"
)

// Allocate takes size bytes from the Go heap: the race detector does not see mapped memory.
func Allocate(size int) (*Memory, error) {
	if size < 0 || size > math.MaxInt-Align {
		return nil, fmt.Errorf("allocating %d bytes: more than there is", size)
	}
	data := make([]byte, size+Align)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(data)))) & (Align - 1)
	return &Memory{Data: data[skip : skip+size : skip+size]}, nil
}
