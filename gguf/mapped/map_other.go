//go:build !unix

package mapped

import (
	"bytes"
	"io"
	"os"
)

// mapFile reads the first size bytes of f and closes it: this system has no mmap.
func mapFile(f *os.File, size int) (data []byte, file io.ReaderAt, close func() error, err error) {
	data = make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, nil, err
	}
	return data, bytes.NewReader(data), func() error { return nil }, f.Close()
}

// release does nothing: the data stays in memory until the file is closed.
func release(data []byte, from, to int) {}
