package rules

import (
	"bytes"
	"cmp"
	"encoding/json"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the folder of the module.
const root = "../.."

// imports lists the packages of this module that each package may import. A package without an
// entry has the entry of the nearest folder above it. "*" is everything.
var imports = map[string][]string{
	// The library's face: only the command line and tests import it.
	".": {"conformance/demo", "exec", "exec/plan", "exec/sample", "exec/speculate", "frontend", "frontend/tokenizer", "gguf", "gguf/sidecar", "graph", "graph/pass", "lower"},

	"gguf":                  {"gguf/quant", "gguf/mapped"},
	"gguf/convert":          {"gguf", "gguf/layers", "gguf/quant"},
	"gguf/dense":            {"gguf"},
	"gguf/layers":           {},
	"gguf/mapped":           {},
	"gguf/numfmt":           {},
	"gguf/safetensors":      {"gguf/mapped"},
	"gguf/sidecar":          {"gguf", "gguf/numfmt", "gguf/quant", "gguf/safetensors"},
	"gguf/quant":            {"gguf/numfmt"},
	"ops/ref":               {"gguf/numfmt"},
	"graph":                 {"gguf/quant"},
	"ops":                   {"gguf/numfmt", "graph", "ops/ref"},
	"graph/graphtest":       {"graph", "ops", "gguf"},
	"graph/pass":            {"graph", "ops"},
	"graph/pass/passtest":   {"graph", "ops", "graph/pass"},
	"graph/draw":            {"graph", "ops", "exec/plan", "graph/draw/graphviz"},
	"graph/draw/graphviz":   {},
	"graph/page":            {"graph", "exec/plan"},
	"frontend":              {"gguf", "gguf/quant", "graph", "ops"},
	"frontend/inspect":      {"frontend", "frontend/tokenizer", "gguf", "gguf/quant"},
	"frontend/tokenizer":    {"gguf"},
	"lower":                 {"gguf", "gguf/layers", "gguf/quant", "gguf/sidecar", "graph", "ops", "graph/pass", "frontend", "exec/plan", "lower/memplan", "lower/target", "lower/cpu", "lower/cuda"},
	"lower/memplan":         {},
	"lower/target":          {"graph", "ops", "exec/plan"},
	"lower/cpu":             {"graph", "ops", "exec/plan", "lower/target"},
	"lower/cuda":            {"graph", "ops", "exec/plan", "lower/target", "lower/cpu"},
	"exec":                  {"gguf", "gguf/numfmt", "gguf/quant", "gguf/sidecar", "exec/plan", "exec/cpu", "exec/cpu/kernel", "exec/cpu/isa", "exec/cuda", "exec/cuda/kernels", "exec/profile"},
	"exec/plan":             {},
	"exec/plan/plantest":    {"exec/plan"},
	"exec/profile":          {"exec/plan", "exec/cpu", "exec/cpu/kernel", "exec/cuda", "exec/load"},
	"exec/backends":         {"exec/cuda", "exec/cuda/kernels", "exec/cuda/virtual", "exec/cuda/driver", "exec/plan"},
	"exec/bench":            {"exec", "exec/plan", "exec/cpu", "exec/load", "exec/profile", "exec/sample", "exec/speculate"},
	"exec/load":             {},
	"exec/sample":           {},
	"exec/speculate":        {"exec"},
	"exec/tunefile":         {"exec"},
	"exec/cpu":              {"exec/cpu/kernel"},
	"exec/cpu/isa":          {},
	"exec/cpu/kernel":       {"gguf/numfmt", "gguf/quant", "ops/ref", "exec/plan"},
	"exec/cuda/virtual":     {"exec/cuda", "exec/cuda/virtual/ptx"},
	"exec/cuda/virtual/ptx": {},
	"exec/cuda":             {"gguf/quant", "exec/plan", "ops/ref"},
	"exec/cuda/driver":      {"exec/cuda", "exec/plan"},
	"exec/cuda/kernels":     {},
	// The command line computes nothing: it imports no kernels, devices, passes or parts of the lowering.
	"cmd": {".", "conformance/compare", "conformance/demo", "exec", "exec/backends", "exec/bench", "exec/load", "exec/plan", "exec/profile", "exec/sample", "exec/speculate", "exec/tunefile",
		"frontend", "frontend/inspect", "frontend/tokenizer", "gguf", "gguf/convert", "gguf/dense", "gguf/quant", "gguf/sidecar", "graph/draw", "graph/page", "lower"},
	"conformance":                  {"*"},
	"conformance/benchmodels":      {"gguf", "gguf/quant", "conformance/testenv"},
	"conformance/benchpeers":       {"exec/cpu", "exec/cpu/isa", "exec/load"},
	"conformance/cudastub":         {},
	"conformance/cudastub/libcuda": {"exec/cuda", "exec/cuda/virtual"},
	"conformance/emulator":         {},
	"conformance/gorgoniaref":      {"gguf", "gguf/dense", "gguf/quant", "gguf/sidecar", "graph", "ops"},
	"conformance/inputs":           {"conformance/testenv"},
	"conformance/rules":            {},
	"conformance/sparsegguf":       {"gguf", "gguf/quant", "conformance/testenv"},
	"conformance/metrics":          {},
	"conformance/modulecopy":       {},
}

// forbidden lists libraries that no package below a folder may import: exec neither draws nor uses
// the library that its results are compared with.
var forbidden = map[string][]string{
	"exec": {"github.com/emicklei/dot", "github.com/tetratelabs/wazero", "gorgonia.org/gorgonia"},
}

// light lists the packages (with "/..." those below too) that depend on nothing but the standard
// library, golang.org/x and packages of this module. "." is the root.
var light = []string{".", "gguf/...", "ops/...", "graph", "graph/pass", "graph/page", "frontend/...", "lower/...", "exec/..."}

// heavy lists the packages below those of light that may have other dependencies, with the reason.
var heavy = map[string]string{
	"gguf/dense":       "tensors as gorgonia.org/tensor has them",
	"exec/cuda/driver": "the CUDA driver, by gorgonia.org/cu",
	"exec/backends":    "opens exec/cuda/driver, with the build tag libcuda",
}

// libraries lists, for each library that this project has to use, the packages that import it.
var libraries = map[string][]string{
	"gorgonia.org/gorgonia":   {"conformance/gorgoniaref"},               // the executor that check compares a plan with
	"gorgonia.org/tensor":     {"conformance/gorgoniaref", "gguf/dense"}, // dump, inspect --extract, check
	"gorgonia.org/cu":         {"exec/cuda/driver"},                      // --device cuda:N, with the build tag libcuda
	"github.com/emicklei/dot": {"graph/draw"},                            // dot, and the picture of compile --dump
}

// A goPackage holds the output of go list -json for a package of the module.
type goPackage struct {
	ImportPath string
	Imports    []string // directly
	Deps       []string // all
}

// listPackages lists the packages of the module, built with the given tag, by their path in it.
func listPackages(t *testing.T, module, tag string) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-tags", tag, "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // else files with C are left out; nothing is compiled
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := map[string]goPackage{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		switch err := d.Decode(&p); {
		case err == io.EOF:
			return packages
		case err != nil:
			t.Fatal(err)
		}
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		packages[cmp.Or(path, ".")] = p
	}
}

// isLight reports whether the rule of light dependencies applies to a package.
func isLight(pkg string) bool {
	return heavy[pkg] == "" && slices.ContainsFunc(light, func(pattern string) bool {
		folder, below := strings.CutSuffix(pattern, "/...")
		return pkg == folder || below && strings.HasPrefix(pkg, folder+"/")
	})
}

// TestLight checks that importing one of the packages of light brings in no third party's code.
func TestLight(t *testing.T) {
	module := modulePath(t)
	packages := listPackages(t, module, "libcuda")
	checked := 0
	for pkg, p := range packages {
		if !isLight(pkg) {
			continue
		}
		checked++
		for _, dep := range p.Deps {
			first, _, _ := strings.Cut(dep, "/")
			switch {
			case !strings.Contains(first, "."), dep == module, strings.HasPrefix(dep, module+"/"), strings.HasPrefix(dep, "golang.org/x/"):
			default:
				t.Errorf("package %s depends on %s, expected the standard library, golang.org/x and this module alone", pkg, dep)
			}
		}
	}
	if checked < 25 {
		t.Errorf("checked %d packages: the list does not see the module", checked)
	}
	for pkg := range heavy {
		if _, ok := packages[pkg]; !ok {
			t.Errorf("package %s is not there: remove its exception", pkg)
		}
	}
}

// TestLibraries checks that each library that this project has to use is imported where the table
// says, and that the command line depends on it.
func TestLibraries(t *testing.T) {
	packages := listPackages(t, modulePath(t), "libcuda")
	for library, want := range libraries {
		var users []string
		for pkg, p := range packages {
			if slices.Contains(p.Imports, library) {
				users = append(users, pkg)
			}
		}
		slices.Sort(users)
		if !slices.Equal(users, want) {
			t.Errorf("%s is imported by %v, expected %v", library, users, want)
		}
		if !slices.Contains(packages["cmd/pesti"].Deps, library) {
			t.Errorf("cmd/pesti does not depend on %s", library)
		}
	}
}

// modulePath reads the path of this module from go.mod.
func modulePath(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(path)
		}
	}
	t.Fatal("go.mod has no module line")
	return ""
}

// TestImports checks the imports of every file of the module that is not a test, whatever its build
// tags, by the table: exec runs a plan without the compiler, leaves import nothing of ours.
func TestImports(t *testing.T) {
	module := modulePath(t)
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
		checkFile(t, module, filepath.ToSlash(rel), path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("read %d files: the walk does not see the module", files)
	}
}

func checkFile(t *testing.T, module, pkg, path string) {
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
		if name == module {
			ours, ok = ".", true
		}
		if !ok || slices.Contains(allowed, "*") && ours != "." || slices.Contains(allowed, ours) {
			continue
		}
		t.Errorf("%s imports %s, package %s may import only %v", path, name, pkg, allowed)
	}
}

// rule returns the entry of a package, or of the nearest folder above it.
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
