// Package testenv finds what tests need from outside the repository: models, a
// Python that has the packages gguf and numpy, and another that has llama.cpp.
// A test that lacks one is skipped, or fails if the variable PESTI_REQUIRE, such
// as "models peer", names it. The package also marks slow tests, which run in
// make prove only, and makes Go's test cache notice when a file outside the
// repository changes. It imports nothing of this module.
package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The file names of the real models.
const (
	SmolLM2 = "smollm2-135m-instruct-q4_1.gguf"
	Qwen    = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
	Gemma   = "gemma-3-270m-q4_k_m.gguf"
)

// Models lists the real models.
var Models = [...]string{SmolLM2, Qwen, Gemma}

// ModelsFolder returns the folder of models: PESTI_MODELS, or pesti/models in the
// user's cache folder.
func ModelsFolder() (string, error) {
	if dir := os.Getenv("PESTI_MODELS"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "pesti", "models"), err
}

// BenchModels is the subfolder of models that only benchmarks read.
const BenchModels = "bench"

// Model returns the path of a file in the folder of models. The file becomes an
// input of the test.
func Model(t testing.TB, name string) string {
	t.Helper()
	dir, err := ModelsFolder()
	if err != nil {
		missing(t, models, "no cache folder: %v", err)
	}
	path := filepath.Join(dir, name)
	Inputs(t, path)
	if _, err := os.Stat(path); err != nil {
		missing(t, models, "model %s is missing; run make models", name)
	}
	return path
}

// Vocabularies returns the paths of the GGUF files that contain only a tokenizer. make models puts
// them into the folder of models.
func Vocabularies(t testing.TB) []string {
	t.Helper()
	dir := Model(t, "vocab")
	paths, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	Inputs(t, paths...)
	return paths
}

// Python returns a command that runs Python with the given arguments, usually a script and its
// arguments. The interpreter is PESTI_PYTHON, or the virtual environment in the repository's root.
// The interpreter, its packages and the scripts become inputs of the test.
func Python(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return python(t, models, "PESTI_PYTHON", ".venv", "set PESTI_PYTHON or run make venv, which installs it", args)
}

// LlamaCpp is like Python for an interpreter with llama.cpp: PESTI_PEER, or the environment that
// make peer builds in the repository's root.
func LlamaCpp(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return python(t, llamaCpp, "PESTI_PEER", ".peer", "run make peer, which compiles llama.cpp", args)
}

func python(t testing.TB, what, variable, folder, remedy string, args []string) *exec.Cmd {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join(root(t), folder, "bin", "python")
	}
	packages, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(path)), "lib", "*", "site-packages"))
	if err != nil {
		t.Fatal(err)
	}
	Inputs(t, append(packages, path)...)
	for _, arg := range args {
		if strings.HasSuffix(arg, ".py") { // also the modules that it may import
			scripts, err := filepath.Glob(filepath.Join(filepath.Dir(arg), "*.py"))
			if err != nil {
				t.Fatal(err)
			}
			Inputs(t, scripts...)
		}
	}
	if _, err := exec.LookPath(path); err != nil {
		missing(t, what, "Python at %s is missing; %s", path, remedy)
	}
	cmd := exec.Command(path, args...)
	cmd.Stderr = os.Stderr
	return cmd
}

// Inputs makes Go's cached result of a passed test depend on the files: the test runs again if the
// size or time of a file changes, or if a file appears or disappears. The go tool tracks files in
// the module that a test opens itself, but neither files elsewhere, nor files that other programs
// read, nor the processor. It treats a path that begins with the module's folder and leaves it by
// ".." as a path in the module. The variable PESTI_INPUTS, which make sets, is a digest of the
// bytes of all such files and of the machine. A test that depends on the machine alone names no
// file.
func Inputs(t testing.TB, paths ...string) {
	t.Helper()
	os.Getenv("PESTI_INPUTS") // the tool records the variable's value
	if len(paths) == 0 {
		return
	}
	module := root(t)
	for _, path := range paths {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		if path, err = filepath.Rel(module, path); err == nil { // fails on Windows for another volume
			os.Stat(module + string(filepath.Separator) + path) // the tool records the name
		}
	}
}

// root returns the folder of go.mod, without symbolic links. It does not look at the folder itself: the go tool
// would record its time, and a new file there, such as bin of the first make test, would make all tests run again.
func root(t testing.TB) string {
	t.Helper()
	dir, err := syscall.Getwd() // unlike os.Getwd, which may return $PWD
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
}

// Prove marks a slow test, which runs only if the variable PESTI_PROVE is set, as in make prove.
// make prove selects tests by the prefix TestProve of their names.
func Prove(t testing.TB) {
	t.Helper()
	if !strings.HasPrefix(t.Name(), "TestProve") {
		t.Fatalf("%s calls testenv.Prove, expected a name that begins with TestProve: make prove runs no other", t.Name())
	}
	if os.Getenv("PESTI_PROVE") == "" {
		t.Skip("runs in make prove, or if PESTI_PROVE is set")
	}
}

// Lacks skips a test that needs something which the system lacks or forbids, such as links. If the
// variable CI is set, the test fails instead, since CI machines must have everything.
func Lacks(t testing.TB, why any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Words that PESTI_REQUIRE can contain.
const (
	models   = "models" // models, and the Python that reads them
	llamaCpp = "peer"
)

func missing(t testing.TB, what, format string, args ...any) {
	t.Helper()
	if slices.Contains(strings.Fields(os.Getenv("PESTI_REQUIRE")), what) {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
