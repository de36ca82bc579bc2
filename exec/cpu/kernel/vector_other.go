//go:build !amd64 || purego

package kernel

var assemblyVectors []*vectors
