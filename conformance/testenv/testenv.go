// Package testenv finds what tests need from outside the repository: models, and
// a Python that has the packages gguf and numpy. Where one is missing the test
// is skipped, or fails if the variable PESTI_REQUIRE is "models".
package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
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
			missing(t, "no cache folder: %v", err)
		}
		dir = filepath.Join(cache, "pesti", "models")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		missing(t, "model %s is missing; run make models", name)
	}
	return path
}

// Python returns a command that runs Python with the given arguments, of which the
// first is mostly a script: PESTI_PYTHON, or the virtual environment in the
// repository's root.
func Python(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	python := os.Getenv("PESTI_PYTHON")
	if python == "" {
		python = filepath.Join(root(t), ".venv", "bin", "python")
	}
	if _, err := exec.LookPath(python); err != nil {
		missing(t, "Python is missing; set PESTI_PYTHON or run make test, which installs it")
	}
	cmd := exec.Command(python, args...)
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

func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("PESTI_REQUIRE") == "models" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
