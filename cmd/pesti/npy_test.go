package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"pesti/gguf/dense"
)

func floatBytes(x []float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// saveNpy writes an .npy file by the description of the format alone.
func saveNpy(t *testing.T, path, kind string, shape []int, data []byte) {
	t.Helper()
	dims := strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ","), "[]") + ","
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", kind, dims)
	saveFile(t, path, "\x93NUMPY\x01\x00"+string([]byte{byte(len(header)), byte(len(header) >> 8)})+header+string(data))
}

// An npyFile holds the contents of an .npy file.
type npyFile struct {
	shape  []int
	floats []float32 // of a file of floats
	ints   []int64   // of one of integers
}

func readNpy(t *testing.T, path string) *npyFile {
	t.Helper()
	f, err := dense.OpenNpy(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x := &npyFile{shape: f.Shape}
	if strings.HasPrefix(f.Kind, "<i") {
		x.ints, err = dense.Ints(f, 0, f.Len())
	} else {
		x.floats, err = dense.Floats[float32](f, 0, f.Len())
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}
