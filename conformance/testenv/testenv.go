// Package testenv finds what tests need from outside the repository: models, a
// Python that has the packages gguf and numpy, and another that has llama.cpp.
// Where one is missing the test is skipped, or fails if the variable
// PESTI_REQUIRE, such as "models peer", says that it must be there. It imports
// nothing of this module.
package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The file names of the real models.
const (
	SmolLM2 = "smollm2-135m-instruct-q4_1.gguf"
	Qwen    = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
	Gemma   = "gemma-3-270m-q4_k_m.gguf"
)

// Models are all of them.
var Models = [...]string{SmolLM2, Qwen, Gemma}

// Model returns the path of a file in the folder of models: PESTI_MODELS, or
// pesti/models in the user's cache folder.
func Model(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("PESTI_MODELS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			missing(t, models, "no cache folder: %v", err)
		}
		dir = filepath.Join(cache, "pesti", "models")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		missing(t, models, "model %s is missing; run make models", name)
	}
	return path
}

// Python returns a command that runs Python with the given arguments, of which the
// first is mostly a script: PESTI_PYTHON, or the virtual environment in the
// repository's root.
func Python(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return python(t, models, "PESTI_PYTHON", ".venv", "set PESTI_PYTHON or run make test, which installs it", args)
}

// LlamaCpp is Python with llama.cpp: PESTI_PEER, or the environment that make peer
// builds in the repository's root.
func LlamaCpp(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return python(t, peer, "PESTI_PEER", ".peer", "run make peer, which compiles llama.cpp", args)
}

func python(t testing.TB, what, variable, folder, remedy string, args []string) *exec.Cmd {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join(root(t), folder, "bin", "python")
	}
	if _, err := exec.LookPath(path); err != nil {
		missing(t, what, "Python at %s is missing; %s", path, remedy)
	}
	cmd := exec.Command(path, args...)
	cmd.Stderr = os.Stderr
	return cmd
}

// root returns the folder of go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
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

// Lacks ends a test for want of something that the system does not have or allow, such as links.
// Where the variable CI is set the test fails: CI runs where all of it is there.
func Lacks(t testing.TB, why any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// What PESTI_REQUIRE can name.
const (
	models = "models" // and the Python that reads them
	peer   = "peer"
)

func missing(t testing.TB, what, format string, args ...any) {
	t.Helper()
	if slices.Contains(strings.Fields(os.Getenv("PESTI_REQUIRE")), what) {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
