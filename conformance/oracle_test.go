package conformance

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/metrics"
	"pesti/conformance/testenv"
	"pesti/gguf/dense"
)

// An oraclePass is one forward pass of the numpy oracle.
type oraclePass struct {
	layers [][][]float64 // by layer, position, dim
	logits [][]float64   // by position
	floor  struct {
		Layers []float64 `json:"layers"`
		Logits float64   `json:"logits"`
	}
}

// A program is a Python program that reads a model and fills a folder.
type program struct {
	folder, script string
	requirements   string // the requirements file of its environment
	python         func(testing.TB, ...string) *exec.Cmd
}

var oracle = program{"oracle", "ref_forward.py", "requirements.txt", testenv.Python}

// run returns the output folder of one run. Runs are cached in the user's cache folder. The key is
// the model's bytes, the arguments, the program's sources and its requirements.
func (p program) run(t testing.TB, model string, args ...string) (dir, stdout string) {
	t.Helper()
	h := sha256.New()
	sources, err := filepath.Glob(filepath.Join(p.folder, "*.py"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no %s: %v", p.folder, err)
	}
	for _, path := range append(sources, p.requirements, model) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(h, args)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	dir = filepath.Join(cache, "pesti", p.folder, fmt.Sprintf("%x", h.Sum(nil)[:12]))
	log := filepath.Join(dir, "stdout.txt")
	if text, err := os.ReadFile(log); err == nil {
		return dir, string(text)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := p.python(t, slices.Concat([]string{filepath.Join(p.folder, p.script), model}, args, []string{"-o", dir})...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	if err := os.WriteFile(log, out, 0o644); err != nil { // last, so that a failed run leaves no log
		t.Fatal(err)
	}
	return dir, string(out)
}

// askOracle runs the oracle over the ids, with its float32 floor. It returns the logits of the
// positions from first on.
func askOracle(t testing.TB, model string, ids []int32, first int) *oraclePass {
	t.Helper()
	return readPass(t, len(ids)-first, model, "--ids", joinIDs(ids), "--floor", "--logit-rows", fmt.Sprintf("%d:%d", first, len(ids)))
}

// askOracleLast is askOracle with the layers and logits of only the last rows positions, for
// prompts whose layers would fill the cache folder.
func askOracleLast(t testing.TB, model string, ids []int32, layers, logits int) *oraclePass {
	t.Helper()
	return readPass(t, logits, model, "--ids", joinIDs(ids), "--floor",
		"--layer-rows", fmt.Sprintf("%d:%d", len(ids)-layers, len(ids)), "--logit-rows", fmt.Sprintf("%d:%d", len(ids)-logits, len(ids)))
}

// readPass runs the oracle and reads its output, with the given number of rows of logits.
func readPass(t testing.TB, rows int, model string, args ...string) *oraclePass {
	t.Helper()
	dir, _ := oracle.run(t, model, args...)
	var p oraclePass
	text, err := os.ReadFile(filepath.Join(dir, "floor.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &p.floor); err != nil {
		t.Fatal(err)
	}
	for l := range p.floor.Layers {
		p.layers = append(p.layers, readRows[float64](t, filepath.Join(dir, fmt.Sprintf("layer_%02d.npy", l))))
	}
	p.logits = readRows[float64](t, filepath.Join(dir, "logits.npy"))
	if len(p.layers) == 0 || len(p.logits) != rows {
		t.Fatalf("the oracle wrote %d layers and %d rows of logits, expected at least one layer and %d rows", len(p.layers), len(p.logits), rows)
	}
	return &p
}

// An argmaxLine is the line that the oracle's --argmax prints for a position.
type argmaxLine struct {
	pos, id int
	margin  float64
}

// askArgmax runs the oracle over the ids and returns the argmax of each row from first on.
func askArgmax(t testing.TB, model string, ids []int32, first int) []argmaxLine {
	t.Helper()
	_, out := oracle.run(t, model, "--ids", joinIDs(ids), "--argmax", "--logit-rows", fmt.Sprintf("%d:%d", first, len(ids)))
	var lines []argmaxLine
	for line := range strings.Lines(out) {
		var a argmaxLine
		if n, _ := fmt.Sscanf(line, "pos %d argmax %d margin %g", &a.pos, &a.id, &a.margin); n == 3 {
			lines = append(lines, a)
		}
	}
	if len(lines) != len(ids)-first {
		t.Fatalf("the oracle printed %d argmaxes, expected %d:\n%s", len(lines), len(ids)-first, out)
	}
	return lines
}

func joinIDs(ids []int32) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}

// readRows reads a two-dimensional .npy file of elements T.
func readRows[T metrics.Float](t testing.TB, path string) [][]T {
	t.Helper()
	f, err := dense.OpenNpy(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var element T
	if kind := fmt.Sprintf("<f%d", binary.Size(element)); f.Kind != kind || len(f.Shape) != 2 {
		t.Fatalf("%s: shape %v of %s, expected two dims of %s", path, f.Shape, f.Kind, kind)
	}
	data, err := dense.Floats[T](f, 0, f.Len())
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(slices.Chunk(data, f.Shape[1]))
}
