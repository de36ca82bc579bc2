//go:build !unix

package mapped

import (
	"io"
	"os"
)

// mapFile reads the first size bytes of f, where the system has no mmap.
func mapFile(f *os.File, size int) (data []byte, unmap func() error, err error) {
	data = make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, err
	}
	return data, func() error { return nil }, nil
}

// release does nothing: what was read stays in memory until the file is closed.
func release(data []byte, from, to int) {}
