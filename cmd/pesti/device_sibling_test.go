//go:build !libcuda && linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sibling writes a program that stands for the one with the driver, and returns its path.
func sibling(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sibling")
	saveFile(t, path, "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// info tells of CUDA what the other program does, or why there is none, and does not fail for that.
func TestInfoCUDA(t *testing.T) {
	for what, c := range map[string]struct {
		script string
		env    map[string]string
		want   []string
	}{
		"missing":      {"", map[string]string{siblingVariable: "/no/such/file"}, []string{"/no/such/file: cannot be found: no such file or directory; a CUDA device needs it: build it there with make pesti-cuda, or use --device virtual"}},
		"no GPU":       {`echo "pesti: CUDA cannot be used here: error 100" >&2; exit 1`, nil, []string{"CUDA cannot be used here: error 100"}},
		"two GPUs":     {`echo "cores 2"; echo "cuda  0: one"; echo "cuda  1: two"`, nil, []string{"0: one", "1: two"}},
		"asked info":   {`echo "cuda $* $PESTI_CUDA_STARTED"`, nil, []string{"info 1"}},
		"other thing":  {`echo hello`, nil, []string{"SIBLING tells of no device; expected this program, built with make pesti-cuda"}},
		"dies":         {`exit 3`, nil, []string{"exit status 3"}},
		"without it":   {"exit 0", map[string]string{siblingStarted: "1"}, []string{"pesti-cuda was built without the driver; build it with make pesti-cuda"}},
		"no program":   {"\x00", nil, []string{"SIBLING: cannot be started: exec format error"}},
		"not for this": {"chmod", nil, []string{"SIBLING: cannot be started: permission denied"}},
	} {
		env := map[string]string{}
		path := sibling(t, c.script)
		switch what {
		case "no program":
			saveFile(t, path, c.script)
		case "not for this":
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		env[siblingVariable] = path
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
		got, want := strings.Join(rows, "\n"), strings.ReplaceAll(strings.Join(c.want, "\n"), "SIBLING", path)
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
