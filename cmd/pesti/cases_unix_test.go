//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"pesti/conformance/testenv"
)

// A file without read permission is an error that says so. Root may read all files, so for root the
// program runs as nobody.
func TestUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret.gguf")
	saveFile(t, secret, readFile(t, demoFile(t, nil)))
	if err := os.Chmod(secret, 0); err != nil {
		t.Fatal(err)
	}
	read := pesti
	if os.Geteuid() == 0 {
		if runtime.GOOS != "linux" {
			t.Skip("to be somebody else takes a program that nobody may read")
		}
		for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o777} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		read = func(args ...string) result { return asNobody(t, dir, args...) }
	}
	for _, args := range [][]string{{"inspect", secret}, {"run", secret, "-p", "a"}, {"plan", "show", secret}} {
		read(args...).fails(t, exitError, secret+": cannot be opened: permission denied")
	}
}

// asNobody runs the program as a user with access only to dir, which also holds its temporary
// files.
func asNobody(t *testing.T, dir string, args ...string) result {
	t.Helper()
	p := &process{Cmd: exec.Command("/proc/self/exe", args...)} // whose folder nobody may enter
	p.Dir, p.Env, p.Stderr = "/", append(os.Environ(), mainVariable+"=1", "TMPDIR="+dir), &p.err
	const nobody = 65534
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	pipe, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		testenv.Lacks(t, fmt.Sprintf("cannot run as nobody here: %v", err))
	}
	out, err := io.ReadAll(pipe)
	if err != nil {
		t.Error(err)
	}
	return result{p.exitCode(), string(out), p.err.String()}
}

// A prompt that does not end is refused before it fills the memory.
func TestEndlessPrompt(t *testing.T) {
	for _, args := range []string{"run demo -f /dev/zero", "bench demo -p 0 -n 1 --speculate 2 --file /dev/zero"} {
		pesti(strings.Fields(args)...).fails(t, 1, "/dev/zero: is longer than 64.0 MiB, expected a text that fits")
	}
}
