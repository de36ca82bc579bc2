// Package mapped opens files as memory: what is read of one is read when somebody looks at it.
//
// It owns what the systems do differently, and what becomes of a reader whose file is cut short
// under it. It knows no format, and imports nothing of this module.
package mapped

import (
	"errors"
	"fmt"
	"os"
)

// A File is a mapped file. It is Close's alone to change.
type File struct {
	Path  string
	Data  []byte // must not be written, and not be read after Close; to be read under Guard
	unmap func() error
}

// Open maps the file at path, of which errors say that it was to be what is expected, such as "a
// GGUF file".
func Open(path, expected string) (*File, error) {
	// Looked at before it is opened: to open a pipe is to wait for its writer.
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: cannot be opened: %w", path, cause(err))
	case st.IsDir():
		return nil, fmt.Errorf("%s: is a directory, expected %s", path, expected)
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file, expected %s", path, expected)
	case st.Size() == 0:
		return nil, fmt.Errorf("%s: truncated: the file is empty, expected %s", path, expected)
	case int64(int(st.Size())) != st.Size():
		return nil, fmt.Errorf("%s: has %d bytes, more than this system can map", path, st.Size())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be opened: %w", path, cause(err))
	}
	defer f.Close()
	data, unmap, err := mapFile(f, int(st.Size()))
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be mapped: %w", path, cause(err))
	}
	return &File{path, data, unmap}, nil
}

// Release tells the system that bytes from to to − 1 will not be read for long.
func (f *File) Release(from, to int) { release(f.Data, from, to) }

// Close unmaps the file. Closing it again does nothing.
func (f *File) Close() error {
	if f.unmap == nil {
		return nil
	}
	unmap := f.unmap
	f.Data, f.unmap = nil, nil
	return unmap()
}

// cause drops the operation and the paths that the os package puts before an error, since our
// message has them.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
