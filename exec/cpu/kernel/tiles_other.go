//go:build !amd64 || purego

package kernel

var (
	assemblyPairs       []Matmul
	assemblyMultipliers []multiplierVariant
)
