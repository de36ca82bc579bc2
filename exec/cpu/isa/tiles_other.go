//go:build !(linux && amd64)

package isa

// tilesAllowed returns false: AMX tiles are supported on Linux only.
func tilesAllowed() bool { return false }
