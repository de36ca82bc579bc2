//go:build !amd64 || purego

package kernel

var assemblyPacks []packKernel
