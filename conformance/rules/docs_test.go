package rules

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackageDocs checks that exactly one file of each importable package has a package comment,
// that it has more than one sentence, and that it says what the package imports. TestImports checks
// the imports themselves.
func TestPackageDocs(t *testing.T) {
	docs := map[string][]string{} // by folder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (name[0] == '.' || name[0] == '_' || name == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil || f.Name.Name == "main" {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		list := docs[folder]
		if f.Doc != nil {
			list = append(list, f.Doc.Text())
		}
		docs[folder] = list // also if it is empty
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) < 20 {
		t.Errorf("found %d packages: the walk does not see the module", len(docs))
	}
	sentence, imports := regexp.MustCompile(`\.(\s|$)`), regexp.MustCompile(`\bimports?\b`)
	for folder, list := range docs {
		switch {
		case len(list) != 1:
			t.Errorf("%s: %d files have a package comment, expected one", folder, len(list))
		case len(sentence.FindAllString(list[0], 2)) < 2:
			t.Errorf("%s: the package comment is one sentence, expected also what the package owns and imports", folder)
		case !imports.MatchString(list[0]):
			t.Errorf("%s: the package comment does not say what the package imports or must not", folder)
		}
	}
}

// TestWhereThingsAre checks that the table of folders in CONTRIBUTING.md has every package up to two levels
// deep, and every folder in it exists. conformance has one row for all of it.
func TestWhereThingsAre(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "\n## Where things are\n")
	text, _, _ = strings.Cut(text, "\n## ")
	named := map[string]bool{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, quoted := range regexp.MustCompile("`[^`]+`").FindAllString(cells[1], -1) {
				named[strings.Trim(quoted, "`")] = true
			}
		}
	}
	for folder := range named {
		if info, err := os.Stat(filepath.Join(root, folder)); err != nil || !info.IsDir() {
			t.Errorf("CONTRIBUTING.md names the folder %s, which does not exist", folder)
		}
	}
	n := 0
	for _, pattern := range []string{"*.go", "*/*.go", "*/*/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			folder, err := filepath.Rel(root, filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			folder = filepath.ToSlash(folder)
			if n++; named[folder] || strings.HasPrefix(folder, "conformance/") || strings.HasSuffix(folder, "test") {
				continue
			}
			t.Errorf("the table of folders in CONTRIBUTING.md lacks %s", folder)
			named[folder] = true // one error for each
		}
	}
	if n < 100 {
		t.Errorf("found %d Go files: the patterns do not see the module", n)
	}
}

// TestReadme: the README is short, and its Go program compiles and prints a story.
func TestReadme(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "\n"); n > 120 {
		t.Errorf("README.md has %d lines, expected at most 120", n)
	}
	_, code, found := strings.Cut(string(data), "```go\n")
	code, _, _ = strings.Cut(code, "```")
	if !found {
		t.Fatal("README.md has no Go program")
	}
	path := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", path)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the Go program of README.md: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "a clever little girl named Hazel") {
		t.Errorf("the Go program of README.md printed %q, expected a story", out)
	}
}
