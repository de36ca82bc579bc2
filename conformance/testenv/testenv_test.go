package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInputs runs the tests of a temporary module with Go's cache. They run again if and only if a
// file changes that they read outside the module.
func TestInputs(t *testing.T) {
	module, outside := t.TempDir(), t.TempDir()
	source, err := os.ReadFile("testenv.go")
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(outside, "bin", "python")
	packages := filepath.Join(outside, "lib", "python3", "site-packages")
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil { // the tool caches no result that depends on a file that was changed in the last seconds
			t.Fatal(err)
		}
	}
	write(filepath.Join(module, "go.mod"), "module example\n\ngo 1.26\n")
	write(filepath.Join(module, "testenv.go"), string(source))
	write(filepath.Join(module, "scripts", "main.py"), "import helper")
	write(filepath.Join(module, "scripts", "helper.py"), "1")
	write(filepath.Join(outside, "models", "m.gguf"), "one")
	write(filepath.Join(outside, "models", "vocab", "v.gguf"), "one")
	write(python, "one")
	write(filepath.Join(packages, "numpy"), "one")
	write(filepath.Join(module, "x_test.go"), `package testenv
import "testing"
func TestModel(t *testing.T) { Model(t, "m.gguf") }
func TestVocabulary(t *testing.T) { Vocabularies(t) }
func TestPython(t *testing.T) { Python(t, "scripts/main.py") }
func TestPlain(t *testing.T) {}
func TestProveIt(t *testing.T) { Prove(t) }
`)
	env := append(os.Environ(), "PESTI_MODELS="+filepath.Join(outside, "models"), "PESTI_PYTHON="+python, "PESTI_REQUIRE=models", "PESTI_PROVE=", "GOFLAGS=", "GOWORK=off")
	cached := func(test, inputs string) bool {
		t.Helper()
		cmd := exec.Command("go", "test", "-run", "^"+test+"$", ".")
		cmd.Dir, cmd.Env = module, append(env, "PESTI_INPUTS="+inputs)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go test: %v\n%s", err, out)
		}
		return strings.Contains(string(out), "(cached)")
	}
	cached("TestModel", "")
	for _, c := range []struct {
		test, path string // a file or folder that is an input of the test; also the digest
	}{
		{"TestModel", filepath.Join(outside, "models", "m.gguf")},
		{"TestVocabulary", filepath.Join(outside, "models", "vocab", "v.gguf")},
		{"TestPython", python},
		{"TestPython", packages},
		{"TestPython", filepath.Join(module, "scripts", "helper.py")},
	} {
		if cached(c.test, c.path) {
			t.Errorf("%s does not run again with another digest", c.test)
		}
		if !cached(c.test, c.path) {
			t.Errorf("%s runs again though nothing changed", c.test)
		}
		if err := os.Chtimes(c.path, old, old.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if cached(c.test, c.path) {
			t.Errorf("%s does not run again after %s changed", c.test, c.path)
		}
	}
	cached("TestPlain", "a")
	if !cached("TestPlain", "b") {
		t.Error("a test without inputs runs again with another digest")
	}
	cached("TestProveIt", "a")
	env = append(env, "PESTI_PROVE=1")
	if cached("TestProveIt", "a") {
		t.Error("a proof that was skipped counts as run")
	}
}
