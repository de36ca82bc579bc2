package dense

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// An Npy is an open .npy file, as numpy.save and WriteNpy write it, with elements in C order.
// Elements are read on request, and memory is allocated only for the requested ones, whatever the
// header states.
type Npy struct {
	Path  string
	Shape []int  // empty for a scalar
	Kind  string // element type: "<f4", "<f8", "<i4" or "<i8"

	data io.ReaderAt
	at   int64 // offset of the elements
	file io.Closer
}

// kinds are the element types that can be read, with their sizes in bytes.
var kinds = map[string]int{"<f4": 4, "<f8": 8, "<i4": 4, "<i8": 8}

// OpenNpy opens the .npy file at path and reads its header. A pipe or device is refused. Errors name
// the file.
func OpenNpy(path string) (*Npy, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: cannot be opened: %w", path, cause(err))
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file, expected an .npy file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be opened: %w", path, cause(err))
	}
	f, err := parse(file, info.Size())
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.Path, f.file = path, file
	return f, nil
}

// Close closes the file. Slices that were returned stay valid.
func (f *Npy) Close() error { return f.file.Close() }

// Len returns the number of elements.
func (f *Npy) Len() int {
	n := 1
	for _, d := range f.Shape {
		n *= d
	}
	return n
}

// cause removes the path from an error of package os: our errors name the file themselves.
func cause(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// The keys of the header, a Python dict.
var (
	descr   = regexp.MustCompile(`'descr': '([^']*)'`)
	fortran = regexp.MustCompile(`'fortran_order': (True|False)`)
	shape   = regexp.MustCompile(`'shape': \(([0-9, ]*)\)`)
)

// maxHeader bounds the length of the header, which holds one type and a few extents.
const maxHeader = 1 << 16

// parse reads the header of a file of size bytes. The format is described at
// numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
func parse(data io.ReaderAt, size int64) (*Npy, error) {
	const preamble = 12
	begin := make([]byte, min(size, preamble))
	if _, err := data.ReadAt(begin, 0); err != nil && err != io.EOF {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(begin, []byte("\x93NUMPY"))
	if !ok || len(rest) < preamble-6 {
		return nil, fmt.Errorf("is not an .npy file, expected an array as numpy.save writes it")
	}
	at, length := int64(10), int64(binary.LittleEndian.Uint16(rest[2:]))
	switch rest[0] {
	case 1:
	case 2, 3:
		at, length = 12, int64(binary.LittleEndian.Uint32(rest[2:]))
	default:
		return nil, fmt.Errorf("version %d of the .npy format, expected 1 to 3", rest[0])
	}
	if length > size-at {
		return nil, fmt.Errorf("truncated: a header of %d bytes, but %d are left", length, size-at)
	}
	if length > maxHeader {
		return nil, fmt.Errorf("a header of %d bytes, expected at most %d", length, maxHeader)
	}
	header := make([]byte, length)
	if _, err := data.ReadAt(header, at); err != nil && err != io.EOF {
		return nil, err
	}
	f := &Npy{data: data, at: at + length}
	return f, f.header(header, size-f.at)
}

// header parses the text of a header that is followed by size bytes of elements.
func (f *Npy) header(text []byte, size int64) error {
	kind, order, dims := descr.FindSubmatch(text), fortran.FindSubmatch(text), shape.FindSubmatch(text)
	if kind == nil || order == nil || dims == nil {
		return fmt.Errorf("the header is %.80q, expected descr, fortran_order and shape", text)
	}
	f.Kind = string(kind[1])
	width, ok := kinds[f.Kind]
	if !ok {
		return fmt.Errorf("elements of type %q, expected <f4, <f8, <i4 or <i8", f.Kind)
	}
	if string(order[1]) == "True" {
		return fmt.Errorf("fortran_order is True, expected rows one after the other")
	}
	left := size / int64(width)
	for word := range strings.SplitSeq(string(dims[1]), ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue // (5,)
		}
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || int64(n) > left {
			return fmt.Errorf("shape (%s), expected at least one and at most the %d elements that the file holds", dims[1], size/int64(width))
		}
		left /= int64(n)
		f.Shape = append(f.Shape, n)
	}
	if int64(f.Len()*width) != size {
		return fmt.Errorf("shape (%s) of %s, and %d bytes of data", dims[1], f.Kind, size)
	}
	return nil
}

// Floats returns the n elements that begin at index first of a file of <f4 or <f8. Elements of <f8
// are rounded if T is float32.
func Floats[T float32 | float64](f *Npy, first, n int) ([]T, error) {
	x := make([]T, 0, n)
	var add func([]byte)
	switch f.Kind {
	case "<f4":
		add = func(b []byte) { x = append(x, T(math.Float32frombits(binary.LittleEndian.Uint32(b)))) }
	case "<f8":
		add = func(b []byte) { x = append(x, T(math.Float64frombits(binary.LittleEndian.Uint64(b)))) }
	default:
		return nil, fmt.Errorf("%s: elements of type %q, expected <f4 or <f8", f.Path, f.Kind)
	}
	return x, f.each(first, n, add)
}

// Ints returns the n elements that begin at index first of a file of <i4 or <i8.
func Ints(f *Npy, first, n int) ([]int64, error) {
	x := make([]int64, 0, n)
	var add func([]byte)
	switch f.Kind {
	case "<i4":
		add = func(b []byte) { x = append(x, int64(int32(binary.LittleEndian.Uint32(b)))) }
	case "<i8":
		add = func(b []byte) { x = append(x, int64(binary.LittleEndian.Uint64(b))) }
	default:
		return nil, fmt.Errorf("%s: elements of type %q, expected <i4 or <i8", f.Path, f.Kind)
	}
	return x, f.each(first, n, add)
}

// each calls add with the bytes of each of the n elements that begin at index first.
func (f *Npy) each(first, n int, add func([]byte)) error {
	width := kinds[f.Kind]
	piece := make([]byte, min(n, 1<<13)*width)
	for end := first + n; first < end; {
		some := piece[:min(end-first, 1<<13)*width]
		if _, err := f.data.ReadAt(some, f.at+int64(first*width)); err != nil {
			if err == io.EOF {
				return fmt.Errorf("%s: became shorter while it was read", f.Path)
			}
			return fmt.Errorf("%s: cannot be read: %w", f.Path, cause(err))
		}
		for ; len(some) > 0; some = some[width:] {
			add(some[:width])
			first++
		}
	}
	return nil
}
