//go:build !(linux && amd64)

package isa

// tilesAllowed: only Linux is known to let a process use AMX tiles.
func tilesAllowed() bool { return false }
