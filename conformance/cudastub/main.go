// Command cudastub builds a libcuda.so.1 from the names in cuda.h, so that a machine without a GPU
// or NVIDIA's driver can link, start and test a program that calls it.
//
//	cudastub -include FOLDER -o FOLDER
//
// Every call fails with CUDA_ERROR_NO_DEVICE, as on a machine without a GPU. If the environment
// variable CUDASTUB is virtual, the virtual device executes the calls that pesti makes: see folder
// libcuda. It needs Go and a C compiler, named in CC, or cc.
//
// A program that loads the library has two Go runtimes, its own and the library's. They share only
// what passes through C. This is for tests only.
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

func main() {
	include := flag.String("include", "", "`FOLDER` with cuda.h")
	out := flag.String("o", "", "`FOLDER` that libcuda.so and libcuda.so.1 are written to")
	flag.Parse()
	if flag.NArg() > 0 || *include == "" || *out == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := build(*include, *out); err != nil {
		fmt.Fprintln(os.Stderr, "cudastub:", err)
		os.Exit(1)
	}
}

// build compiles the library into the folder out.
func build(include, out string) error {
	work, err := os.MkdirTemp("", "cudastub")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	// The header maps names to versioned names, so the preprocessor must list the declarations.
	declared, err := run(compiler(), "-E", "-I", include, "-include", "cuda.h", "-x", "c", "/dev/null")
	if err != nil {
		return err
	}
	names := declarations(declared)
	if len(names) == 0 {
		return fmt.Errorf("%s: declares no function", filepath.Join(include, "cuda.h"))
	}
	source, device := filepath.Join(work, "names.c"), filepath.Join(work, "device.a")
	if err := os.WriteFile(source, stubs(names), 0o666); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return err
	}
	if _, err := run("go", "build", "-buildmode=c-archive", "-o", device, "pesti/conformance/cudastub/libcuda"); err != nil {
		return err
	}
	if _, err := run(compiler(), "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-o", filepath.Join(out, "libcuda.so.1"),
		source, "-Wl,--whole-archive", device, "-Wl,--no-whole-archive", "-lpthread"); err != nil {
		return err
	}
	link := filepath.Join(out, "libcuda.so")
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Symlink("libcuda.so.1", link)
}

// compiler returns the name of the C compiler.
func compiler() string { return cmp.Or(os.Getenv("CC"), "cc") }

// run runs a program and returns its standard output.
func run(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, says.Bytes())
	}
	return out, nil
}

var declaration = regexp.MustCompile(`\bCUresult\s+(cu\w+)\s*\(`)

// declarations returns the names of the functions that a preprocessed header declares, sorted.
func declarations(header []byte) []string {
	var names []string
	for _, m := range declaration.FindAllSubmatch(header, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// stubs returns C code that defines each name unless another file does. The functions do not read
// their arguments.
func stubs(names []string) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "int cudastub_missing(const char *name);")
	for _, name := range names {
		fmt.Fprintf(&b, "__attribute__((weak)) int %s(void) { return cudastub_missing(%q); }\n", name, name)
	}
	return b.Bytes()
}
