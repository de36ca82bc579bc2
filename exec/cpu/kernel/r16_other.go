//go:build !amd64 || purego

package kernel

var (
	assemblyMatmuls []Matmul
	assemblyQblocks qblocker
)
