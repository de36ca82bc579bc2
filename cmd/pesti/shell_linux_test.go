package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pesti/conformance/testenv"
	"pesti/gguf"
	"pesti/gguf/quant"
)

// If a disk is full, or a file may not grow, the existing file stays, and no part of the new one is
// left.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	model := demoFile(t, nil)
	plan, npy := filepath.Join(dir, "x.plan"), filepath.Join(dir, "x.npy")
	picture, converted := filepath.Join(dir, "x.svg"), filepath.Join(dir, "x.gguf")
	values := filepath.Join(dir, "values")
	if err := os.Mkdir(values, 0o777); err != nil {
		t.Fatal(err)
	}
	logits := filepath.Join(values, "logits.npy")
	for _, c := range []struct {
		file string
		args []string
	}{
		{plan, []string{"compile", model, "-o", plan}},
		{npy, []string{"inspect", model, "--extract", "token_embd.weight", "-o", npy}},
		{picture, []string{"dot", model, "--all", "-o", picture}},
		{converted, []string{"convert", model, "--type", "f32", "-o", converted}},
		{logits, []string{"dump", model, "-p", story, "-o", values}},
	} {
		saveFile(t, c.file, "old")
		r := limited(t, c.args...)
		r.fails(t, exitError, c.file+": cannot be written: file too large")
		if got := readFile(t, c.file); got != "old" {
			t.Errorf("pesti %q left %.40q, expected the old file", c.args, got)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(c.file), "*.tmp")); len(left) > 0 {
			t.Errorf("pesti %q left %q", c.args, left)
		}
	}
	pesti("compile", model, "-o", "/dev/full").fails(t, exitError, "/dev/full", "no space left on device")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		testenv.Lacks(t, err)
	}
	defer full.Close()
	for _, args := range [][]string{{"compile", model, "-o", "-"}, {"inspect", model}, {"run", model, "-p", story, "-n", "4"}, {"dot", model}, {"version"}, {"info"}} {
		p := &process{Cmd: exec.Command("/proc/self/exe", args...)}
		p.Env, p.Stdout, p.Stderr = append(os.Environ(), mainVariable+"=1"), full, &p.err
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		result{code: p.exitCode(), err: p.err.String()}.fails(t, exitError, "no space left on device")
	}
}

// Binary output does not go to a terminal.
func TestBinaryToTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		testenv.Lacks(t, err)
	}
	defer terminal.Close()
	w := gguf.NewWriter() // a model so small that a terminal's buffer would hold it
	w.AddTensor("x", quant.F16, []int64{32, 1}, make([]byte, 64))
	model := filepath.Join(t.TempDir(), "small.gguf")
	if err := w.WriteFile(model); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"convert", model, "--type", "f32", "-o", "-"},
		{"inspect", model, "--extract", "x", "-o", "-"},
	} {
		var errs bytes.Buffer
		code := run(context.Background(), args, nil, terminal, &errs, os.Getenv)
		result{code: code, err: errs.String()}.fails(t, exitUsage, "-o -: standard output is a terminal", "see pesti "+args[0]+" --help")
	}
}

// limited runs the program in a separate process that cannot write files of more than 4 KiB. The
// shell sets the limit, since in this process it would also apply to the files of package testing.
func limited(t *testing.T, args ...string) result {
	t.Helper()
	p := startUnder(t, []string{"/bin/sh", "-c", `ulimit -f 8 && exec "$@"`, "sh"}, args...) // blocks of 512 bytes
	out, err := io.ReadAll(p.out)
	if err != nil {
		t.Error(err)
	}
	return result{p.exitCode(), string(out), p.err.String()}
}

// Writing to a read-only folder is an error that says so, and a model in it runs. Root may write
// everywhere, so for root the program runs as nobody.
func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(folder, "m.gguf")
	saveFile(t, model, readFile(t, demoFile(t, nil)))
	plan := filepath.Join(folder, "x.plan")
	saveFile(t, plan, "old")
	for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o777, folder: 0o555} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	call := pesti
	if os.Geteuid() == 0 {
		call = func(args ...string) result { return asNobody(t, dir, args...) }
	}
	for _, args := range [][]string{
		{"compile", model, "-o", plan},
		{"dump", model, "-p", story, "-o", folder},
		{"dot", model, "-o", filepath.Join(folder, "x.dot")},
	} {
		call(args...).fails(t, exitError, folder, "cannot be written: permission denied")
	}
	if got := readFile(t, plan); got != "old" {
		t.Errorf("the old plan became %.40q", got)
	}
	if r := call("run", model, "-p", story, "-n", "3"); r.code != 0 || r.out == "" || strings.Contains(r.err, "pesti:") {
		t.Errorf("run: %+v", r)
	}
	call("compile", model, "-o", filepath.Join(folder, "none", "x.plan")).fails(t, exitError, "cannot be written: no such file or directory")
}
