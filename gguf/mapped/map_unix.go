//go:build unix

package mapped

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the first size bytes of f read-only. close ends the mapping and closes f.
func mapFile(f *os.File, size int) (data []byte, file io.ReaderAt, close func() error, err error) {
	data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, nil, err
	}
	return data, f, func() error { return errors.Join(unix.Munmap(data), f.Close()) }, nil
}

// release lets the system free the whole pages within [from, to) of a mapping.
func release(data []byte, from, to int) {
	page := os.Getpagesize()
	from, to = (from+page-1)/page*page, to/page*page
	if from < to {
		// After an error the pages stay in memory, which affects nothing but memory use.
		_ = unix.Madvise(data[from:to], unix.MADV_DONTNEED)
	}
}
