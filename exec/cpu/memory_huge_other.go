//go:build !linux || race

package cpu

// AllocateHuge is Allocate: the system cannot be asked for huge pages.
func AllocateHuge(size int) (*Memory, error) { return Allocate(size) }
