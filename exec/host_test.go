package exec

import (
	"encoding/binary"
	"strings"
	"testing"
)

func TestHost(t *testing.T) {
	for _, c := range []struct {
		bits  int
		order binary.ByteOrder
		want  string // "" for no error
	}{
		{64, binary.LittleEndian, ""},
		{32, binary.LittleEndian, "32-bit little-endian"},
		{64, binary.BigEndian, "64-bit big-endian"},
		{32, binary.BigEndian, "32-bit big-endian"},
	} {
		err := checkHost(c.bits, c.order)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d bits, %v: error %v, expected %q", c.bits, c.order, err, c.want)
		}
	}
}
