//go:build (!amd64 && !arm64) || purego

package kernel

var (
	assemblyMatmuls []Matmul
	assemblyWords   wordsFunc
)
