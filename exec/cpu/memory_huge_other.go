//go:build !linux || race

package cpu

// AllocateHuge is Allocate. Huge pages cannot be requested here.
func AllocateHuge(size int) (*Memory, error) { return Allocate(size) }
