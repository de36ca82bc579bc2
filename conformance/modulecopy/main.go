// Command modulecopy copies the files of this module that git tracks into a new folder, and gives
// the module another path:
//
//	go run ./conformance/modulecopy -module example.org/you/pesti -o ../copy
//
// It rewrites the module's path in go.mod files (nested modules too), in imports, and wherever a
// text names a package of the module by its full path. The names of programs, environment variables
// and folders stay the same.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

func main() {
	module := flag.String("module", "", "`PATH` of the copy's module")
	dir := flag.String("o", "", "`DIR` to create and copy to")
	flag.Parse()
	if err := run(".", *module, *dir, flag.NArg()); err != nil {
		fmt.Fprintln(os.Stderr, "modulecopy:", err)
		os.Exit(1)
	}
}

// run copies the module in the folder root.
func run(root, module, dir string, args int) error {
	switch {
	case args > 0 || module == "" || dir == "":
		return errors.New("expected -module PATH -o DIR and no arguments")
	case !modulePath.MatchString(module):
		return fmt.Errorf("-module: found %q, expected a module path such as example.org/you/pesti", module)
	}
	files, err := tracked(root)
	if err != nil {
		return err
	}
	return copyModule(root, files, module, dir)
}

// modulePath matches the module paths that this program accepts; go.mod allows a few more.
var modulePath = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]*(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$`)

// tracked lists the files below root that git tracks, with slashes.
func tracked(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if !slices.Contains(files, "go.mod") {
		return nil, fmt.Errorf("%s: git tracks no go.mod there, expected the top folder of a module", root)
	}
	return files, nil
}

// copyModule copies files from root to dir, which must not exist, and renames the module. On error
// dir is not created.
func copyModule(root string, files []string, module, dir string) (err error) {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%s: exists, expected the name of a folder to create", dir)
	}
	r, err := newRenamer(root, files, module)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	part := dir + ".part"
	if err := os.Mkdir(part, 0o777); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(part)
		}
	}()
	for _, name := range files {
		if err := r.copyFile(root, name, part); err != nil {
			return err
		}
	}
	return os.Rename(part, dir)
}

// A renamer rewrites the path of a module.
type renamer struct {
	from, to string
	packages *regexp.Regexp // matches the full path of a package of the module, with the character before it
}

// newRenamer finds the module's packages: the folders with Go files.
func newRenamer(root string, files []string, module string) (*renamer, error) {
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	line := moduleLine.FindSubmatch(data)
	if line == nil {
		return nil, fmt.Errorf("%s: has no module line", filepath.Join(root, "go.mod"))
	}
	from := string(line[2])
	folders := map[string]bool{}
	for _, name := range files {
		if folder := path.Dir(name); strings.HasSuffix(name, ".go") || path.Base(name) == "go.mod" {
			for ; folder != "."; folder = path.Dir(folder) {
				folders[regexp.QuoteMeta(folder)] = true
			}
		}
	}
	var names []string
	for folder := range folders {
		names = append(names, folder)
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) }) // the longest match first
	r := &renamer{from: from, to: module}
	if len(names) > 0 {
		r.packages = regexp.MustCompile(`(^|[^\w/.-])` + regexp.QuoteMeta(from) + `/(` + strings.Join(names, "|") + `)\b`)
	}
	return r, nil
}

// moduleLine matches the module line of a go.mod file.
var moduleLine = regexp.MustCompile(`(?m)^(module[ \t]+)(\S+)`)

// copyFile copies one file, with its mode.
func (r *renamer) copyFile(root, name, dir string) error {
	from, to := filepath.Join(root, filepath.FromSlash(name)), filepath.Join(dir, filepath.FromSlash(name))
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: is not a regular file", from)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if data, err = r.rewrite(name, data); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm()|fs.FileMode(0o200))
}

// rewrite returns the text of a file with the new path of the module.
func (r *renamer) rewrite(name string, data []byte) ([]byte, error) {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return data, nil // not a text
	}
	text := data
	if r.packages != nil && bytes.Contains(data, []byte(r.from+"/")) {
		text = r.packages.ReplaceAll(text, []byte("${1}"+r.to+"/${2}"))
	}
	switch {
	case path.Base(name) == "go.mod":
		line := moduleLine.FindSubmatch(text)
		if line != nil && string(line[2]) == r.from {
			text = moduleLine.ReplaceAll(text, []byte("${1}"+r.to))
		}
	case strings.HasSuffix(name, ".go"):
		return r.goFile(name, text, !bytes.Equal(text, data))
	case strings.HasSuffix(name, ".md"):
		root := regexp.MustCompile(`(?m)^(\s*(?:import )?(?:\w+ )?")` + regexp.QuoteMeta(r.from) + `"$`)
		text = root.ReplaceAll(text, []byte("${1}"+r.to+`"`))
	}
	return text, nil
}

// goFile rewrites imports of the module's root package, whose path may be an ordinary word
// elsewhere in the text, and sorts the imports again if a path has changed.
func (r *renamer) goFile(name string, text []byte, changed bool) ([]byte, error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	for _, spec := range slices.Backward(f.Imports) {
		if value, err := strconv.Unquote(spec.Path.Value); err != nil || value != r.from {
			continue
		}
		begin, end := files.Position(spec.Path.Pos()).Offset, files.Position(spec.Path.End()).Offset
		text = slices.Concat(text[:begin], []byte(strconv.Quote(r.to)), text[end:])
		changed = true
	}
	if !changed {
		return text, nil
	}
	formatted, err := format.Source(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return formatted, nil
}
