package conformance

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "pesti"

// imports is what each package may import of this module. A package under a folder with an entry
// but without one of its own follows the entry of the folder. "*" is everything.
var imports = map[string][]string{
	"gguf":                         {"gguf/quant", "gguf/mapped"},
	"gguf/mapped":                  {},
	"gguf/safetensors":             {"gguf/mapped"},
	"gguf/sidecar":                 {"gguf", "gguf/quant", "gguf/safetensors", "ops/ref"},
	"gguf/quant":                   {},
	"ops/ref":                      {},
	"graph":                        {"gguf/quant"},
	"ops":                          {"graph", "ops/ref"},
	"graph/graphtest":              {"graph", "ops", "gguf"},
	"graph/pass":                   {"graph", "ops"},
	"graph/pass/passtest":          {"graph", "ops", "graph/pass"},
	"graph/draw":                   {"graph", "ops", "exec/plan", "graph/draw/graphviz"},
	"graph/draw/graphviz":          {},
	"graph/page":                   {},
	"frontend":                     {"gguf", "gguf/quant", "graph", "ops"},
	"frontend/tokenizer":           {"gguf"},
	"lower":                        {"gguf", "gguf/quant", "gguf/sidecar", "graph", "ops", "graph/pass", "frontend", "exec/plan", "lower/memplan", "lower/target", "lower/cpu", "lower/cuda"},
	"lower/memplan":                {},
	"lower/target":                 {"graph", "ops", "exec/plan"},
	"lower/cpu":                    {"graph", "ops", "exec/plan", "lower/target"},
	"lower/cuda":                   {"graph", "ops", "exec/plan", "lower/target", "lower/cpu"},
	"exec":                         {"gguf", "gguf/quant", "gguf/sidecar", "exec/plan", "exec/cpu", "exec/cpu/kernel", "exec/cpu/isa", "exec/cuda", "exec/cuda/kernels", "ops/ref"},
	"exec/plan":                    {},
	"exec/plan/plantest":           {"exec/plan"},
	"exec/sample":                  {},
	"exec/speculate":               {"exec"},
	"exec/cpu":                     {"exec/cpu/kernel"},
	"exec/cpu/isa":                 {},
	"exec/cpu/kernel":              {"gguf/quant", "ops/ref", "exec/plan"},
	"exec/cuda/virtual":            {"exec/cuda", "exec/cuda/virtual/ptx"},
	"exec/cuda/virtual/ptx":        {},
	"exec/cuda":                    {"gguf/quant", "exec/plan", "ops/ref"},
	"exec/cuda/driver":             {"exec/cuda", "exec/plan"},
	"exec/cuda/kernels":            {},
	"cmd":                          {"*"},
	"conformance":                  {"*"},
	"conformance/benchpeers":       {},
	"conformance/cudastub":         {},
	"conformance/cudastub/libcuda": {"exec/cuda", "exec/cuda/virtual"},
	"conformance/emulator":         {},
	"conformance/gorgoniaref":      {"gguf", "gguf/quant", "gguf/sidecar", "graph", "ops"},
	"conformance/sparsegguf":       {"gguf", "gguf/quant", "conformance/testenv"},
	"conformance/metrics":          {},
	"conformance/npy":              {},
}

// forbidden libraries: nothing under a folder may draw, or compute by what it is checked against.
var forbidden = map[string][]string{
	"exec": {"github.com/emicklei/dot", "github.com/tetratelabs/wazero", "gorgonia.org/gorgonia"},
}

// TestImports reads every file of the module that is not a test and holds its imports against
// the table: exec runs a plan without the compiler, leaves import nothing of ours.
func TestImports(t *testing.T) {
	root := ".."
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
				return filepath.SkipDir // a module of its own
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		checkFile(t, filepath.ToSlash(rel), path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("read %d files: the walk does not see the module", files)
	}
}

func checkFile(t *testing.T, pkg, path string) {
	allowed, ok := rule(pkg)
	if !ok {
		t.Errorf("%s: package %s has no rule in the table of imports", path, pkg)
		return
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Error(err)
			continue
		}
		for folder, list := range forbidden {
			if (pkg == folder || strings.HasPrefix(pkg, folder+"/")) && slices.Contains(list, name) {
				t.Errorf("%s imports %s, which nothing under %s may", path, name, folder)
			}
		}
		ours, ok := strings.CutPrefix(name, module+"/")
		if !ok || slices.Contains(allowed, "*") || slices.Contains(allowed, ours) {
			continue
		}
		t.Errorf("%s imports %s, package %s may import only %v", path, name, pkg, allowed)
	}
}

// rule finds the entry of a package or of the nearest folder above it.
func rule(pkg string) ([]string, bool) {
	for {
		if list, ok := imports[pkg]; ok {
			return list, true
		}
		i := strings.LastIndexByte(pkg, '/')
		if i < 0 {
			return nil, false
		}
		pkg = pkg[:i]
	}
}
