package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// An array is what an .npy file holds: numbers in C order.
type array struct {
	shape []int
	kind  string // "<f4", "<f8", "<i4", "<i8"
	data  []byte
}

// The keys of the header, a Python dict.
var (
	npyKind    = regexp.MustCompile(`'descr': '([^']*)'`)
	npyFortran = regexp.MustCompile(`'fortran_order': (True|False)`)
	npyShape   = regexp.MustCompile(`'shape': \(([0-9, ]*)\)`)
)

// loadNpy reads an .npy file of little-endian floats or integers. (The reader of package tensor
// believes a header that asks for more memory than there is.) The format is described at
// numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
func loadNpy(path string) (*array, error) {
	text, err := readInput(path)
	if err != nil {
		return nil, err
	}
	a, err := parseNpy(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

func parseNpy(text []byte) (*array, error) {
	rest, ok := bytes.CutPrefix(text, []byte("\x93NUMPY"))
	if !ok || len(rest) < 6 {
		return nil, fmt.Errorf("is not an .npy file, expected an array as numpy.save writes it")
	}
	at, length := 4, uint64(binary.LittleEndian.Uint16(rest[2:]))
	switch rest[0] {
	case 1:
	case 2, 3:
		at, length = 6, uint64(binary.LittleEndian.Uint32(rest[2:]))
	default:
		return nil, fmt.Errorf("version %d of the .npy format, expected 1 to 3", rest[0])
	}
	if length > uint64(len(rest)-at) {
		return nil, fmt.Errorf("truncated: a header of %d bytes, but %d are left", length, len(rest)-at)
	}
	header, data := rest[at:at+int(length)], rest[at+int(length):]

	kind, fortran, shape := npyKind.FindSubmatch(header), npyFortran.FindSubmatch(header), npyShape.FindSubmatch(header)
	if kind == nil || fortran == nil || shape == nil {
		return nil, fmt.Errorf("the header is %.80q, expected descr, fortran_order and shape", header)
	}
	a := &array{kind: string(kind[1]), data: data}
	size, ok := map[string]int{"<f4": 4, "<f8": 8, "<i4": 4, "<i8": 8}[a.kind]
	if !ok {
		return nil, fmt.Errorf("elements of type %q, expected <f4, <f8, <i4 or <i8", a.kind)
	}
	if string(fortran[1]) == "True" {
		return nil, fmt.Errorf("fortran_order is True, expected rows one after the other")
	}
	left := len(data) / size
	for word := range strings.SplitSeq(string(shape[1]), ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue // (5,)
		}
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > left {
			return nil, fmt.Errorf("shape (%s), expected at least one and at most the %d elements that the file holds", shape[1], len(data)/size)
		}
		left /= n
		a.shape = append(a.shape, n)
	}
	if a.elems()*size != len(data) {
		return nil, fmt.Errorf("shape (%s) of %s, and %d bytes of data", shape[1], a.kind, len(data))
	}
	return a, nil
}

func (a *array) elems() int {
	n := 1
	for _, d := range a.shape {
		n *= d
	}
	return n
}

// floats returns the elements as float32, the accuracy of all that is compared.
func (a *array) floats() ([]float32, error) {
	x := make([]float32, a.elems())
	switch a.kind {
	case "<f4":
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(a.data[4*i:]))
		}
	case "<f8":
		for i := range x {
			x[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(a.data[8*i:])))
		}
	default:
		return nil, fmt.Errorf("elements of type %q, expected <f4 or <f8", a.kind)
	}
	return x, nil
}

// ids returns the elements as token ids.
func (a *array) ids() ([]int32, error) {
	ids := make([]int32, a.elems())
	for i := range ids {
		var id int64
		switch a.kind {
		case "<i4":
			id = int64(int32(binary.LittleEndian.Uint32(a.data[4*i:])))
		case "<i8":
			id = int64(binary.LittleEndian.Uint64(a.data[8*i:]))
		default:
			return nil, fmt.Errorf("elements of type %q, expected <i4 or <i8", a.kind)
		}
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("element %d is %d, expected a token id", i, id)
		}
		ids[i] = int32(id)
	}
	return ids, nil
}
