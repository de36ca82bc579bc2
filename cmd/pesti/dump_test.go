package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/testenv"
)

const fox = "The quick brown fox jumps over the lazy dog."

func TestDump(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	r := pesti("dump", "demo", "-p", fox, "-o", dir)
	if r.code != 0 || r.err != "" {
		t.Fatalf("dump: %+v", r)
	}
	tokens := readNpy(t, filepath.Join(dir, "tokens.npy"))
	ids := tokens.ints
	n := len(ids)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	if want := []string{"layer_00.npy", "layer_01.npy", "layer_02.npy", "layer_03.npy", "logits.npy", "tokens.npy"}; !slices.Equal(names, want) {
		t.Errorf("dump wrote %q, want %q", names, want)
	}
	logits := readNpy(t, filepath.Join(dir, "logits.npy"))
	if s := logits.shape; len(s) != 2 || s[0] != n || s[1] < 256 {
		t.Errorf("logits have shape %v, want [%d, vocabulary]", s, n)
	}

	// The printed values equal the last position in the files.
	var want strings.Builder
	for layer := range 4 {
		d := readNpy(t, filepath.Join(dir, fmt.Sprintf("layer_%02d.npy", layer)))
		if s := d.shape; len(s) != 2 || s[0] != n || s[1] != 256 {
			t.Errorf("layer %d has shape %v, want [%d, 256]", layer, s, n)
		}
		row := d.floats[(n-1)*256:]
		sum := 0.0
		for _, x := range row {
			sum += float64(x) * float64(x)
		}
		fmt.Fprintf(&want, "layer %02d norm %.4f first8 %s\n", layer, math.Sqrt(sum), strings.Trim(fmt.Sprintf("%.4f", row[:8]), "[]"))
	}
	if !strings.HasPrefix(r.out, want.String()+"top8 ") {
		t.Errorf("dump prints:\n%s\nwant:\n%s", r.out, &want)
	}
	best, row := 0, logits.floats[(n-1)*logits.shape[1]:]
	for id, x := range row {
		if x > row[best] {
			best = id
		}
	}
	if want := fmt.Sprintf("\nargmax %d\n", best); !strings.HasSuffix(r.out, want) || !strings.Contains(r.out, fmt.Sprintf("\ntop8 %d:%.4f ", best, row[best])) {
		t.Errorf("dump prints:\n%s\nwant it to end with %q", r.out, want)
	}

	// The files are the same for a prompt of ids, steps of any size and any number of threads.
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
	for _, args := range [][]string{{"--ids", list}, {"-p", fox, "--ubatch", "1"}, {"-p", fox, "--ubatch", "3"}, {"-p", fox, "-t", "1"}} {
		other := t.TempDir()
		out := ok(t, append(args, "dump", "demo", "-o", other)...)
		if out != r.out {
			t.Errorf("dump %q prints other values:\n%s", args, out)
		}
		for _, name := range names {
			if readFile(t, filepath.Join(other, name)) != readFile(t, filepath.Join(dir, name)) {
				t.Errorf("dump %q: %s is different", args, name)
			}
		}
	}
	// Python reads the files, and its tool prints the same.
	if got := python(t, "../../conformance/oracle/probe_all_layers.py", dir); got != r.out {
		t.Errorf("probe_all_layers.py prints:\n%s\nwant:\n%s", got, r.out)
	}
	got := python(t, "-c", `
import numpy, sys
for name in ["tokens", "layer_00", "logits"]:
    a = numpy.load(f"{sys.argv[1]}/{name}.npy")
    print(a.dtype.str, *a.shape)
`, dir)
	if want := fmt.Sprintf("<i4 %d\n<f4 %d 256\n<f4 %d %d\n", n, n, n, logits.shape[1]); got != want {
		t.Errorf("numpy reads %q, want %q", got, want)
	}
}

// python runs Python, which must succeed, and returns its output.
func python(t *testing.T, args ...string) string {
	t.Helper()
	out, err := testenv.Python(t, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(out), "\r\n", "\n")
}

func TestDumpValues(t *testing.T) {
	dir := t.TempDir()
	ok(t, "dump", "demo", "--ids", "1,2,3", "-o", dir, "--values", "blk.1.ffn_*", "--values", "blk.2.q,blk.2.out")
	for _, name := range []string{"blk.1.ffn_norm", "blk.1.ffn_gated", "blk.2.q"} {
		if s := readNpy(t, filepath.Join(dir, name+".npy")).shape; len(s) != 2 || s[0] != 3 {
			t.Errorf("%s has shape %v, want 3 rows", name, s)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "blk.2.out.npy")); err == nil {
		t.Errorf("blk.2.out is written twice")
	}
	pesti("dump", "demo", "-p", story, "--ctx", "3", "-o", dir).fails(t, 1, "4 tokens", "at most 3")
	file := filepath.Join(dir, "file")
	saveFile(t, file, "")
	pesti("dump", "demo", "-p", story, "-o", file).fails(t, 1, file)
}

// A folder holds the values of one dump: if it has files that a new dump would not replace, the
// dump is refused.
func TestDumpInUsedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "values")
	dump := func(args ...string) result { return pesti(append([]string{"dump", "demo", "-o", dir}, args...)...) }
	for _, args := range [][]string{{"--ids", "1,2,3"}, {"--ids", "4"}, {"--ids", "1,2", "--values", "blk.1.q"}, {"--ids", "3", "--values", "blk.1.q"}} {
		if r := dump(args...); r.code != 0 {
			t.Fatalf("dump %q: %+v", args, r)
		}
	}
	before := contents(t, dir)
	check := func(name string, args ...string) {
		t.Helper()
		dump(args...).fails(t, exitUsage, dir+": holds "+name+", which this dump does not write")
		for name, text := range contents(t, dir) {
			if before[name] != text {
				t.Errorf("%s is another file now", name)
			}
		}
	}
	check("blk.1.q.npy", "--ids", "1,2")
	check("blk.1.q.npy", "--ids", "1,2", "--values", "blk.2.q")
	before["layer_04.npy"], before["notes.txt"] = "of a larger model", "text"
	for _, name := range []string{"layer_04.npy", "notes.txt"} {
		saveFile(t, filepath.Join(dir, name), before[name])
	}
	check("layer_04.npy", "--ids", "1,2", "--values", "blk.1.q")
	if err := os.Remove(filepath.Join(dir, "layer_04.npy")); err != nil {
		t.Fatal(err)
	}
	if r := dump("--ids", "1,2", "--values", "blk.1.q"); r.code != 0 {
		t.Errorf("dump next to another kind of file: %+v", r)
	}
	ok(t, "compare", "demo", dir, "--max-d", "0")
}

// Values of three dims keep their dims, and only the used positions of the context are written, for
// any steps and any source of the shape.
func TestDumpShapes(t *testing.T) {
	plan, _ := demoPlan(t, "--precision", "exact", "--values", "blk.1.probs", "--values", "blk.*.out")
	for _, args := range [][]string{{"demo", "--values", "blk.1.probs"}, {"demo", "--values", "blk.1.probs", "--ubatch", "2"}, {plan}} {
		dir := t.TempDir()
		ok(t, append([]string{"dump", "--ids", "1,2,3,4,5", "-o", dir}, args...)...)
		probs := readNpy(t, filepath.Join(dir, "blk.1.probs.npy"))
		if want := []int{5, 4, 5}; !slices.Equal(probs.shape, want) {
			t.Fatalf("dump %q: probabilities have shape %v, want %v", args, probs.shape, want)
		}
		for i, row := 0, probs.floats; len(row) > 0; i, row = i+1, row[5:] {
			sum := 0.0
			for c, p := range row[:5] {
				sum += float64(p)
				if token := i / 4; c > token && p != 0 {
					t.Errorf("dump %q: token %d looks at %d, with probability %v", args, token, c, p)
				}
			}
			if math.Abs(sum-1) > 1e-5 {
				t.Errorf("dump %q: the probabilities of row %d add up to %v", args, i, sum)
			}
		}
	}
}

// A plan returns the values that it was compiled with.
func TestDumpPlan(t *testing.T) {
	dir := t.TempDir()
	plan := filepath.Join(dir, "p.plan")
	ok(t, "compile", "demo", "-o", plan)
	pesti("dump", plan, "-p", fox, "-o", dir).fails(t, 1, plan, "blk.0.out", "--values")
	ok(t, "compile", "demo", "-o", plan, "--precision", "exact", "--values", "blk.*.out")
	want := ok(t, "dump", "demo", "-p", fox, "-o", dir)
	if got := ok(t, "dump", plan, "-p", fox, "-o", filepath.Join(dir, "plan")); got != want {
		t.Errorf("dump of the plan prints:\n%s\nwant:\n%s", got, want)
	}
	for _, name := range []string{"logits.npy", "layer_03.npy", "tokens.npy"} {
		if readFile(t, filepath.Join(dir, name)) != readFile(t, filepath.Join(dir, "plan", name)) {
			t.Errorf("%s of the plan is different", name)
		}
	}
}
