//go:build !libcuda && linux

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// standIn writes a program that replaces pesti-cuda, and returns its path.
func standIn(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stand-in")
	saveFile(t, path, "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// info prints the rows about CUDA of the other program, or why there are none, and does not fail for that.
func TestInfoCUDA(t *testing.T) {
	for what, c := range map[string]struct {
		script string
		env    map[string]string
		want   []string
	}{
		"missing":      {"", map[string]string{reexecVariable: "/no/such/file"}, []string{"/no/such/file: cannot be found: no such file or directory; a CUDA device needs it: build it there with make pesti-cuda, or use --device virtual"}},
		"no GPU":       {`echo "pesti: CUDA cannot be used here: error 100" >&2; exit 1`, nil, []string{"CUDA cannot be used here: error 100"}},
		"two GPUs":     {`echo "cores 2"; echo "cuda  0: one"; echo "cuda  1: two"`, nil, []string{"0: one", "1: two"}},
		"asked info":   {`echo "cuda $* $PESTI_CUDA_STARTED"`, nil, []string{"info 1"}},
		"other thing":  {`echo hello`, nil, []string{"STAND-IN lists no device; expected this program, built with make pesti-cuda"}},
		"dies":         {`exit 3`, nil, []string{"exit status 3"}},
		"without it":   {"exit 0", map[string]string{reexecStarted: "1"}, []string{"pesti-cuda was built without the driver; build it with make pesti-cuda"}},
		"no program":   {"\x00", nil, []string{"STAND-IN: cannot be started: exec format error"}},
		"not for this": {"chmod", nil, []string{"STAND-IN: cannot be started: permission denied"}},
	} {
		env := map[string]string{}
		path := standIn(t, c.script)
		switch what {
		case "no program":
			saveFile(t, path, c.script)
		case "not for this":
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		env[reexecVariable] = path
		for k, v := range c.env {
			env[k] = v
		}
		r := call{env: env, args: []string{"info"}}.run()
		var rows []string
		for line := range strings.Lines(r.out) {
			if row, ok := strings.CutPrefix(line, "cuda "); ok {
				rows = append(rows, strings.TrimSpace(row))
			}
		}
		got, want := strings.Join(rows, "\n"), strings.ReplaceAll(strings.Join(c.want, "\n"), "STAND-IN", path)
		if r.code != 0 || r.err != "" || got != want {
			t.Errorf("%s: exit code %d, says %q, tells\n%s\nexpected\n%s", what, r.code, r.err, got, want)
		}
	}
}

func TestLacking(t *testing.T) {
	for list, want := range map[string]string{
		"": "",
		"\tlinux-vdso.so.1 (0x00007ffd)\n\tlibcuda.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n": "libcuda.so.1",
		"\tlibcuda.so.1 => /lib/libcuda.so.1 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n":              "",
		"Usage:\n  pesti [flags]\n": "",
	} {
		if got := lacking(list); got != want {
			t.Errorf("%q lacks %q, expected %q", list, got, want)
		}
	}
}

// A verb that runs on a GPU becomes the other program, which gets the arguments, the input and the
// signals, and whose exit code counts.
func TestReexec(t *testing.T) {
	t.Setenv(reexecVariable, standIn(t, `echo "$*"; cat; echo "says" >&2; exit 7`))
	for _, args := range [][]string{
		{"run", "demo", "-f", "-", "--device", "cuda:3"},
		{"run", "demo", "-f", "-", "--target", "cuda"},
		{"dump", "demo", "-f", "-", "--device", "cuda", "-o", filepath.Join(t.TempDir(), "out")},
	} {
		p := started(t, "the input", args...)
		out, err := io.ReadAll(p.out)
		if code := p.exitCode(); err != nil || code != 7 || string(out) != strings.Join(args, " ")+"\nthe input" || p.err.String() != "says\n" {
			t.Errorf("%q: exit code %d, prints %q, says %q, %v", args, code, out, &p.err, err)
		}
	}

	// A name without a slash in the variable is a file in this folder, and is not looked up in $PATH.
	here := standIn(t, `exit 9`)
	t.Chdir(filepath.Dir(here))
	t.Setenv(reexecVariable, filepath.Base(here))
	short := started(t, "", "run", "demo", "-p", story, "--device", "cuda:0")
	if code := short.exitCode(); code != 9 {
		t.Errorf("a name without a slash: exit code %d, says %q", code, &short.err)
	}

	t.Setenv(reexecVariable, standIn(t, "echo ready; exec sleep 60"))
	p := started(t, "", "run", "demo", "-p", story, "--device", "cuda:0")
	p.read(t, len("ready\n"))
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if p.Wait(); p.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("a signal ends it with %v", p.ProcessState)
	}

	t.Setenv(reexecVariable, "/no/such/file")
	p = started(t, "", "run", "demo", "-p", story, "--device", "cuda:0")
	const want = "pesti: /no/such/file: cannot be found: no such file or directory; a CUDA device needs it: build it there with make pesti-cuda, or use --device virtual\n"
	if code := p.exitCode(); code != exitError || p.err.String() != want {
		t.Errorf("without the other program: exit code %d, says %q", code, &p.err)
	}
}

// started starts the program with something to read.
func started(t *testing.T, stdin string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(self, args...)}
	p.Env = append(os.Environ(), mainVariable+"=1")
	p.Stdin, p.Stderr = strings.NewReader(stdin), &p.err
	if p.out, err = p.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}
