// Package mapped maps files into memory: pages are read from the file when they are accessed.
//
// It hides the differences between systems, and turns the memory fault of a reader whose file was
// truncated into an error. It knows no file format, and imports nothing of this module.
package mapped

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// A File is a mapped file. Only Close changes it.
type File struct {
	Path  string
	Data  []byte // must not be written, and not be read after Close; read it under Guard
	file  io.ReaderAt
	close func() error // nil after Close
}

// Open maps the file at path. Errors say what was expected, such as "a GGUF file".
func Open(path, expected string) (*File, error) {
	// Stat comes before Open, which would block on a pipe until there is a writer.
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
	data, file, closeFile, err := mapFile(f, int(st.Size()))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: cannot be mapped: %w", path, cause(err))
	}
	return &File{path, data, file, closeFile}, nil
}

// ReadAt reads len(p) bytes from position at on. Unlike a read of Data it maps no pages, so that the
// process does not hold more of the file than p. Several goroutines may call it.
func (f *File) ReadAt(p []byte, at int64) error {
	if f.close == nil {
		return fmt.Errorf("%s: the file is closed, expected it to be open", f.Path)
	}
	_, err := f.file.ReadAt(p, at)
	switch {
	case errors.Is(err, io.EOF):
		return shrunk(f.Path)
	case err != nil:
		return fmt.Errorf("%s: cannot be read: %w", f.Path, cause(err))
	}
	return nil
}

// CheckSize returns a ShrunkError if the file is shorter than when it was opened. A reader of Data calls it after
// it has read: the rest of the last page of a truncated file reads as zeros, without a memory fault.
func (f *File) CheckSize() error {
	file, ok := f.file.(*os.File)
	if !ok { // Data is a copy
		return nil
	}
	st, err := file.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("%s: its size cannot be read: %w", f.Path, cause(err))
	case st.Size() < int64(len(f.Data)):
		return shrunk(f.Path)
	}
	return nil
}

// Release tells the system that bytes from to to − 1 will not be needed for a while.
func (f *File) Release(from, to int) { release(f.Data, from, to) }

// Close unmaps and closes the file. Closing it again does nothing.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	closeFile := f.close
	f.Data, f.close = nil, nil
	return closeFile()
}

// cause removes the operation and the path that package os puts before an error: our errors have them
// already.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
