package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

func floatBytes(x []float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// npyText returns an .npy file with the given header.
func npyText(header string, data []byte) []byte {
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	return append(append(b, header...), data...)
}

func npyHeader(kind, order, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }\n", kind, order, shape)
}

func saveNpy(t *testing.T, path, kind string, shape []int, data []byte) {
	t.Helper()
	dims := strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ","), "[]") + ","
	saveFile(t, path, string(npyText(npyHeader(kind, "False", dims), data)))
}

func TestParseNpy(t *testing.T) {
	six := floatBytes([]float32{1, 2, 3, 4, 5, 6})
	long := npyText(npyHeader("<f4", "False", "2, 3"), six)
	v2 := append([]byte("\x93NUMPY\x02\x00"), long[8], 0, 0, 0)
	v2 = append(v2, long[10:]...)
	for _, c := range []struct {
		name, words string // words of the error, "" for none
		text        []byte
	}{
		{"plain", "", long},
		{"version 2", "", v2},
		{"one dim", "", npyText(npyHeader("<f4", "False", "6,"), six)},
		{"no dim", "", npyText(npyHeader("<f4", "False", ""), six[:4])},
		{"empty", "not an .npy file", nil},
		{"another file", "not an .npy file", []byte("GGUF, or whatever it is")},
		{"version 9", "version 9", append([]byte("\x93NUMPY\x09\x00"), long[8:]...)},
		{"long header", "truncated", npyText(npyHeader("<f4", "False", "6"), nil)[:20]},
		{"no header", "expected descr", npyText("{}", six)},
		{"big-endian", `">f4"`, npyText(npyHeader(">f4", "False", "2, 3"), six)},
		{"f2", `"<f2"`, npyText(npyHeader("<f2", "False", "2, 3"), six)},
		{"by columns", "fortran_order", npyText(npyHeader("<f4", "True", "2, 3"), six)},
		{"short", "2, 3", npyText(npyHeader("<f4", "False", "2, 3"), six[:20])},
		{"short by a byte", "2, 3", npyText(npyHeader("<f4", "False", "2, 3"), six[:23])},
		{"overlong", "2, 2", npyText(npyHeader("<f4", "False", "2, 2"), six)},
		{"huge", "1000000000000", npyText(npyHeader("<f4", "False", "1000000000000, 1000000000000"), six)},
		{"beyond an int", "99999999999999999999", npyText(npyHeader("<f4", "False", "99999999999999999999"), six)},
		{"zero", "at least one", npyText(npyHeader("<f4", "False", "0, 3"), nil)},
	} {
		a, err := parseNpy(c.text)
		if c.words == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			} else if x, err := a.floats(); err != nil || len(x) != len(a.data)/4 || x[len(x)-1] != float32(len(x)) {
				t.Errorf("%s: %v, %v", c.name, x, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: error %v, want one about %q", c.name, err, c.words)
		}
	}
	// Whatever the bytes, no panic.
	for i := range long {
		for _, x := range []byte{0, 1, 0x7f, 0xff, '0', '9', ','} {
			b := append([]byte(nil), long...)
			b[i] = x
			parseNpy(b)
			parseNpy(b[:i])
		}
	}
}

func TestNpyTypes(t *testing.T) {
	for _, c := range []struct {
		kind  string
		data  []byte
		ids   string // "" where it is an error
		float string
	}{
		{"<i4", []byte{7, 0, 0, 0}, "[7]", ""},
		{"<i8", []byte{7, 0, 0, 0, 0, 0, 0, 0}, "[7]", ""},
		{"<i4", []byte{255, 255, 255, 255}, "", ""},
		{"<i8", []byte{0, 0, 0, 0, 1, 0, 0, 0}, "", ""},
		{"<f4", floatBytes([]float32{1.5}), "", "[1.5]"},
		{"<f8", binary.LittleEndian.AppendUint64(nil, math.Float64bits(1.5)), "", "[1.5]"},
	} {
		a := &array{shape: []int{1}, kind: c.kind, data: c.data}
		if ids, err := a.ids(); (err == nil) != (c.ids != "") || err == nil && fmt.Sprint(ids) != c.ids {
			t.Errorf("%s %v: ids %v, %v, want %q", c.kind, c.data, ids, err, c.ids)
		}
		if x, err := a.floats(); (err == nil) != (c.float != "") || err == nil && fmt.Sprint(x) != c.float {
			t.Errorf("%s %v: floats %v, %v, want %q", c.kind, c.data, x, err, c.float)
		}
	}
}

// What numpy writes is read.
func TestNpyFromPython(t *testing.T) {
	dir := t.TempDir()
	python(t, "-c", `
import numpy, sys
for kind in "f4", "f8", "i4", "i8":
    numpy.save(f"{sys.argv[1]}/{kind}.npy", numpy.arange(12, dtype=kind).reshape(3, 4))
`, dir)
	for _, kind := range []string{"f4", "f8", "i4", "i8"} {
		a, err := loadNpy(filepath.Join(dir, kind+".npy"))
		if err != nil {
			t.Error(err)
			continue
		}
		var last any
		if kind[0] == 'f' {
			x, _ := a.floats()
			last = x[len(x)-1]
		} else {
			x, _ := a.ids()
			last = x[len(x)-1]
		}
		if fmt.Sprint(a.shape, last) != "[3 4] 11" {
			t.Errorf("%s: shape %v, last %v, want [3 4] and 11", kind, a.shape, last)
		}
	}
}
