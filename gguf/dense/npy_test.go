package dense

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/testenv"
)

func floatBytes(x ...float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// text returns an .npy file with the given header.
func text(header string, data []byte) []byte {
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	return append(append(b, header...), data...)
}

func header(kind, order, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }\n", kind, order, shape)
}

func parseBytes(b []byte) (*Npy, error) { return parse(bytes.NewReader(b), int64(len(b))) }

func TestParseNpy(t *testing.T) {
	six := floatBytes(1, 2, 3, 4, 5, 6)
	plain := text(header("<f4", "False", "2, 3"), six)
	v2 := append([]byte("\x93NUMPY\x02\x00"), plain[8], 0, 0, 0)
	v2 = append(v2, plain[10:]...)
	long := append([]byte("\x93NUMPY\x02\x00\x00\x00\x02\x00"), make([]byte, 1<<18)...)
	for _, c := range []struct {
		name, words string // words of the error, "" for none
		text        []byte
		shape       []int
	}{
		{"plain", "", plain, []int{2, 3}},
		{"version 2", "", v2, []int{2, 3}},
		{"one dim", "", text(header("<f4", "False", "6,"), six), []int{6}},
		{"no dim", "", text(header("<f4", "False", ""), six[:4]), nil},
		{"empty", "not an .npy file", nil, nil},
		{"magic alone", "not an .npy file", plain[:6], nil},
		{"another file", "not an .npy file", []byte("GGUF, or whatever it is"), nil},
		{"version 9", "version 9", append([]byte("\x93NUMPY\x09\x00"), plain[8:]...), nil},
		{"cut header", "truncated", plain[:20], nil},
		{"long header", "expected at most 65536", long, nil},
		{"no header", "expected descr", text("{}", six), nil},
		{"big-endian", `">f4"`, text(header(">f4", "False", "2, 3"), six), nil},
		{"f2", `"<f2"`, text(header("<f2", "False", "2, 3"), six), nil},
		{"by columns", "fortran_order", text(header("<f4", "True", "2, 3"), six), nil},
		{"short", "2, 3", text(header("<f4", "False", "2, 3"), six[:20]), nil},
		{"short by a byte", "2, 3", text(header("<f4", "False", "2, 3"), six[:23]), nil},
		{"overlong", "2, 2", text(header("<f4", "False", "2, 2"), six), nil},
		{"huge", "1000000000000", text(header("<f4", "False", "1000000000000, 1000000000000"), six), nil},
		{"beyond an int", "99999999999999999999", text(header("<f4", "False", "99999999999999999999"), six), nil},
		{"zero", "at least one", text(header("<f4", "False", "0, 3"), nil), nil},
	} {
		f, err := parseBytes(c.text)
		switch {
		case c.words == "" && err != nil, c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)):
			t.Errorf("%s: error %v, want one about %q", c.name, err, c.words)
		case c.words != "":
		case !slices.Equal(f.Shape, c.shape):
			t.Errorf("%s: shape %v, want %v", c.name, f.Shape, c.shape)
		default:
			if x, err := Floats[float32](f, 0, f.Len()); err != nil || len(x) != f.Len() || x[len(x)-1] != float32(len(x)) {
				t.Errorf("%s: %v, %v", c.name, x, err)
			}
		}
	}
	// No bytes cause a panic.
	for i := range plain {
		for _, x := range []byte{0, 1, 0x7f, 0xff, '0', '9', ','} {
			b := slices.Clone(plain)
			b[i] = x
			parseBytes(b)
			parseBytes(b[:i])
		}
	}
}

func TestNpyElements(t *testing.T) {
	for _, c := range []struct {
		kind   string
		data   []byte
		ints   string // "" if it is an error
		floats string
	}{
		{"<i4", []byte{7, 0, 0, 0}, "[7]", ""},
		{"<i4", []byte{255, 255, 255, 255}, "[-1]", ""},
		{"<i8", []byte{0, 0, 0, 0, 1, 0, 0, 0}, "[4294967296]", ""},
		{"<f4", floatBytes(1.5), "", "[1.5]"},
		{"<f4", floatBytes(float32(math.Inf(-1))), "", "[-Inf]"},
		{"<f8", binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.1)), "", "[0.1]"},
	} {
		f, err := parseBytes(text(header(c.kind, "False", "1"), c.data))
		if err != nil {
			t.Fatal(err)
		}
		if x, err := Ints(f, 0, 1); (err == nil) != (c.ints != "") || err == nil && fmt.Sprint(x) != c.ints {
			t.Errorf("%s %v: ints %v, %v, want %q", c.kind, c.data, x, err, c.ints)
		}
		if x, err := Floats[float64](f, 0, 1); (err == nil) != (c.floats != "") || err == nil && fmt.Sprint(x) != c.floats {
			t.Errorf("%s %v: floats %v, %v, want %q", c.kind, c.data, x, err, c.floats)
		}
	}
	// Parts that are longer than the amount read at a time.
	var x []float32
	for i := range 20000 {
		x = append(x, float32(i))
	}
	f, err := parseBytes(text(header("<f4", "False", "20000"), floatBytes(x...)))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][2]int{{0, 20000}, {0, 0}, {19999, 1}, {8191, 2}, {1, 8192}, {5000, 12000}} {
		if got, err := Floats[float32](f, part[0], part[1]); err != nil || !slices.Equal(got, x[part[0]:part[0]+part[1]]) {
			t.Errorf("elements %v: %d of them, %v", part, len(got), err)
		}
	}
}

// Files that numpy writes are read, whatever their names.
func TestNpyFromPython(t *testing.T) {
	dir := t.TempDir()
	if err := testenv.Python(t, "-c", `
import numpy, sys
for kind in "f4", "f8", "i4", "i8":
    numpy.save(f"{sys.argv[1]}/{kind}.npy", numpy.arange(12, dtype=kind).reshape(3, 4))
`, dir).Run(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"f4", "f8", "i4", "i8"} {
		f, err := OpenNpy(filepath.Join(dir, kind+".npy"))
		if err != nil {
			t.Error(err)
			continue
		}
		defer f.Close()
		var row any
		if kind[0] == 'f' {
			row, err = Floats[float32](f, 4, 4)
		} else {
			row, err = Ints(f, 4, 4)
		}
		if got := fmt.Sprintf("%v %s %v", f.Shape, f.Kind, row); err != nil || got != "[3 4] <"+kind+" [4 5 6 7]" {
			t.Errorf("%s: %s, %v", kind, got, err)
		}
	}
}

func TestOpenNpyRefuses(t *testing.T) {
	dir := t.TempDir()
	for path, words := range map[string]string{
		filepath.Join(dir, "none.npy"): "none.npy: cannot be opened: ",
		dir:                            dir + ": is not a regular file",
		os.DevNull:                     os.DevNull + ": is not a regular file",
	} {
		if _, err := OpenNpy(path); err == nil || !strings.HasPrefix(strings.TrimPrefix(err.Error(), dir+string(filepath.Separator)), words) {
			t.Errorf("%s: error %v, want %q", path, err, words)
		}
	}
	// A file that is cut after it was opened.
	path := filepath.Join(dir, "cut.npy")
	whole := text(header("<f4", "False", "3"), floatBytes(1, 2, 3))
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenNpy(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, int64(len(whole)-1)); err != nil {
		testenv.Lacks(t, err)
	}
	if _, err := Floats[float32](f, 0, 3); err == nil || err.Error() != path+": became shorter while it was read" {
		t.Errorf("error %v, want that it became shorter", err)
	}
}
