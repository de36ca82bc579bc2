package exec

import (
	"encoding/binary"
	"fmt"
)

// checkHost refuses machines on which the kernels would read the model wrong: they read weights
// and caches as they lie in memory, little-endian as in the file, at offsets beyond 32 bits.
func checkHost(bits int, order binary.ByteOrder) error {
	little := order.Uint16([]byte{1, 0}) == 1
	if bits == 64 && little {
		return nil
	}
	name := "big-endian"
	if little {
		name = "little-endian"
	}
	return fmt.Errorf("this machine is %d-bit %s, expected 64-bit little-endian: plans run nowhere else", bits, name)
}
