//go:build unix && !race

package cpu

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Allocate maps size bytes.
func Allocate(size int) (*Memory, error) {
	if size < 0 {
		return nil, fmt.Errorf("mapping %d bytes: expected at least 0", size)
	}
	data, err := unix.Mmap(-1, 0, max(size, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	return &Memory{data[:size], func() error { return unix.Munmap(data) }}, nil
}
