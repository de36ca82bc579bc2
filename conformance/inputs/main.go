// Command inputs prints a digest of the inputs of tests that Go's test cache does not track: the
// models, the Python scripts and their requirements, and the machine (its processors and its
// kernel). It runs in the module's root:
//
//	PESTI_INPUTS=$(go run ./conformance/inputs) go test ./...
//
// It defines the inputs, and imports conformance/testenv, which reads the variable.
package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"pesti/conformance/testenv"
)

func main() {
	h := sha256.New()
	machine(h)
	err := scripts(h, ".")
	if folder, none := testenv.ModelsFolder(); none == nil { // without a folder, tests find no models either
		err = errors.Join(err, models(h, folder))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inputs:", err)
		os.Exit(1)
	}
	fmt.Printf("%x\n", h.Sum(nil))
}

// machine adds the properties of the machine that tests depend on.
func machine(h hash.Hash) {
	fmt.Fprintln(h, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease") // nothing on other systems
	h.Write(release)
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	var facts []string
	for line := range strings.Lines(string(cpu)) {
		if name, _, _ := strings.Cut(line, "\t"); slices.Contains([]string{"model name", "flags", "Features"}, name) {
			facts = append(facts, line)
		}
	}
	slices.Sort(facts)
	fmt.Fprintln(h, slices.Compact(facts))
}

// models adds the files of the folder of models, except models that only benchmarks read.
func models(h hash.Hash, folder string) error {
	measured := filepath.Join(folder, testenv.BenchModels) + string(filepath.Separator)
	return files(h, folder, func(path string) bool { return !strings.HasPrefix(path, measured) })
}

// scripts adds the module's Python scripts and their requirements.
func scripts(h hash.Hash, root string) error {
	return files(h, root, func(path string) bool {
		return strings.HasSuffix(path, ".py") || strings.HasPrefix(filepath.Base(path), "requirements") && strings.HasSuffix(path, ".txt")
	})
}

// files adds the names and bytes of the wanted files below root, except in folders whose names begin
// with a dot. A root that does not exist has no files.
func files(h hash.Hash, root string, wanted func(path string) bool) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == root:
			return nil
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case !wanted(path):
			return nil
		}
		info, err := os.Stat(path) // follows links
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintf(h, "%q %d\n", filepath.ToSlash(path), info.Size())
		_, err = io.Copy(h, f)
		return err
	})
}
