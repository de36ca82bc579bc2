package main

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"pesti/conformance/testenv"
)

// TestFiles checks that the digest changes if a file's name, a byte of it or its length changes.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]string{}
	digest := func(after string, same bool) {
		t.Helper()
		h := sha256.New()
		if err := scripts(h, dir); err != nil {
			t.Fatal(err)
		}
		sum := string(h.Sum(nil))
		if before, ok := seen[sum]; ok != same {
			t.Errorf("after %q: the digest of %q comes again: %t, expected %t", after, before, ok, same)
		}
		seen[sum] = after
	}
	digest("nothing", false)
	write("a/x.py", "one")
	digest("a script", false)
	write("a/x.py", "two")
	digest("another byte", false)
	write("requirements-peer.txt", "numpy")
	digest("a requirement", false)
	write("a/x.go", "package a")
	write(".venv/lib/y.py", "three")
	digest("what is no input", true)
	if err := os.Rename(filepath.Join(dir, "a", "x.py"), filepath.Join(dir, "a", "z.py")); err != nil {
		t.Fatal(err)
	}
	digest("another name", false)
	if err := files(sha256.New(), filepath.Join(dir, "absent"), func(string) bool { return true }); err != nil {
		t.Error(err)
	}
}

// TestModels checks that models which are only measured do not change the digest.
func TestModels(t *testing.T) {
	dir := t.TempDir()
	digest := func() string {
		h := sha256.New()
		if err := models(h, dir); err != nil {
			t.Fatal(err)
		}
		return string(h.Sum(nil))
	}
	write := func(name string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("weights"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	empty := digest()
	write(filepath.Join(testenv.BenchModels, "large.gguf"))
	if digest() != empty {
		t.Error("a model that is only measured changes the digest")
	}
	write("small.gguf")
	if digest() == empty {
		t.Error("a model does not change the digest")
	}
}
