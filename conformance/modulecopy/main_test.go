package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pesti/conformance/testenv"
)

// tree writes files by name and returns their folder and names.
func tree(t *testing.T, files map[string]string) (root string, names []string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return root, names
}

func TestCopy(t *testing.T) {
	const other = "package b\n"
	root, names := tree(t, map[string]string{
		"go.mod":        "module app\n\ngo 1.26.0\n\nrequire example.org/app/a v1.0.0\n",
		"app.go":        "package app\n",
		"a/_asm/go.mod": "module app/a/_asm\n\ngo 1.26.0\n",
		"a/b/b.go":      other,
		"a/x/x.go":      other,
		"a/a.go": `// Package a is used by app/a/b, and not by app/absent, x/app/a or app/ab.
package a

import (
	"fmt"

	"app"
	. "app/a/b"
	y "app/a/x"
)

var cache = []string{"app", "app/models", "bin/app/a"}

const path = "app/a/b"
`,
		"README.md": "Run `go doc app/a/b`. The word \"app\" stays.\n\n    import \"app\"\n",
		"model.bin": "app/a/b\x00\"app\"",
		"run":       "go run app/a/b\n",
	})
	if err := os.Chmod(filepath.Join(root, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new", "copy")
	if err := copyModule(root, names, "example.org/you/zoo", dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"go.mod":        "module example.org/you/zoo\n\ngo 1.26.0\n\nrequire example.org/app/a v1.0.0\n",
		"app.go":        "package app\n",
		"a/_asm/go.mod": "module example.org/you/zoo/a/_asm\n\ngo 1.26.0\n",
		"a/b/b.go":      other,
		"a/a.go": `// Package a is used by example.org/you/zoo/a/b, and not by app/absent, x/app/a or app/ab.
package a

import (
	"fmt"

	"example.org/you/zoo"
	. "example.org/you/zoo/a/b"
	y "example.org/you/zoo/a/x"
)

var cache = []string{"app", "app/models", "bin/app/a"}

const path = "example.org/you/zoo/a/b"
`,
		"README.md": "Run `go doc example.org/you/zoo/a/b`. The word \"app\" stays.\n\n    import \"example.org/you/zoo\"\n",
		"model.bin": "app/a/b\x00\"app\"",
		"run":       "go run example.org/you/zoo/a/b\n",
	} {
		got, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil || string(got) != want {
			t.Errorf("%s is\n%s\nwant\n%s\n%v", name, got, want, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "run")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("run is no longer executable: %v, %v", info.Mode(), err)
	}

	// The copy can be copied back.
	back := filepath.Join(t.TempDir(), "back")
	if err := copyModule(dir, names, "app", back); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		want, _ := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if got, err := os.ReadFile(filepath.Join(back, filepath.FromSlash(name))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what it was after copying twice: %v", name, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	root, names := tree(t, map[string]string{"go.mod": "module app\n", "a.go": "package a\n"})
	there := t.TempDir()
	fresh := func() string { return filepath.Join(t.TempDir(), "copy") }
	for _, c := range []struct {
		name, module, dir string
		args              int
		want              string
	}{
		{"no module", "", fresh(), 0, "expected -module PATH -o DIR"},
		{"no folder", "example.org/x", "", 0, "expected -module PATH -o DIR"},
		{"an argument", "example.org/x", fresh(), 1, "no arguments"},
		{"a space", "example.org/my module", fresh(), 0, `found "example.org/my module", expected a module path`},
		{"a slash at the end", "example.org/", fresh(), 0, "expected a module path"},
		{"a URL", "https://example.org/x", fresh(), 0, "expected a module path"},
		{"parent", "../x", fresh(), 0, "expected a module path"},
		{"a quote", `x"y`, fresh(), 0, "expected a module path"},
	} {
		if err := run(root, c.module, c.dir, c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if err := copyModule(root, names, "example.org/x", there); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a folder that exists: error %v", err)
	}
	// If a file cannot be copied, nothing is copied.
	dir := fresh()
	if err := copyModule(root, append(names, "absent"), "example.org/x", dir); err == nil {
		t.Error("a missing file: no error")
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 0 {
		t.Errorf("after an error there are %v, %v", entries, err)
	}
}

// TestThisModule renames this module and searches all files for quoted package paths with the old
// module path.
func TestThisModule(t *testing.T) {
	const root = "../.."
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("not in a git checkout")
	}
	files, err := tracked(root)
	if err != nil {
		testenv.Lacks(t, err)
	}
	r, err := newRenamer(root, files, "example.org/you/renamed")
	if err != nil {
		t.Fatal(err)
	}
	old := regexp.MustCompile(`"` + regexp.QuoteMeta(r.from) + `/(cmd|conformance|exec|frontend|gguf|graph|lower|ops)[/"]`)
	renamed := 0
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := r.rewrite(name, data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(text, data) {
			renamed++
		}
		if found := old.Find(text); found != nil && name != "conformance/modulecopy/main_test.go" {
			t.Errorf("%s: still has %s", name, found)
		}
	}
	if renamed < 200 {
		t.Errorf("%d files have another path, expected 200 at least", renamed)
	}
}
