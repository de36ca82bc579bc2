//go:build !unix || race

package cpu

import (
	"fmt"
	"math"
	"unsafe"
)

// most is what Allocate gives at once: a larger size would end the process instead of failing.
const most = min(1<<40, math.MaxInt-Align)

// Allocate takes size bytes from the Go heap: the race detector does not see mapped memory.
func Allocate(size int) (*Memory, error) {
	if size < 0 || size > most {
		return nil, fmt.Errorf("allocating %d bytes: expected at most %d", size, most)
	}
	data := make([]byte, size+Align)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(data)))) & (Align - 1)
	return &Memory{Data: data[skip : skip+size : skip+size]}, nil
}
