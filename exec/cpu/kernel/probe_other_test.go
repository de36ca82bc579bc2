//go:build !amd64 || purego

package kernel

func readers() map[string]func([]byte) uint64 {
	return map[string]func([]byte) uint64{"portable": readWords}
}
