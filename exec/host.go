package exec

import (
	"encoding/binary"
	"fmt"
)

// checkHost returns an error on machines that cannot run the kernels. Kernels read weights and caches as
// little-endian data, as in the file, at offsets that may exceed 32 bits.
func checkHost(bits int, order binary.ByteOrder) error {
	little := order.Uint16([]byte{1, 0}) == 1
	if bits == 64 && little {
		return nil
	}
	name := "big-endian"
	if little {
		name = "little-endian"
	}
	return fmt.Errorf("this machine is %d-bit %s, expected 64-bit little-endian: plans run only there", bits, name)
}
