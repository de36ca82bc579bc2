package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pesti/conformance/compare"
	"pesti/exec/profile"
)

// TestWriteFolder simulates a disk that is full after some bytes of the last file. No new file is
// left, and existing files are unchanged.
func TestWriteFolder(t *testing.T) {
	full := func(w io.Writer) error {
		if _, err := w.Write(make([]byte, 2*writeSize)); err != nil {
			return err
		}
		return &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	}
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	files := func(one, two func(io.Writer) error) []compare.DumpFile {
		return []compare.DumpFile{{Name: "one", Write: one}, {Name: "two", Write: two}}
	}
	for _, c := range []struct{ dir, there string }{{"new", ""}, {"a/b/c", ""}, {"old", "one"}, {"old", "two"}} {
		root := t.TempDir()
		dir := filepath.Join(root, c.dir)
		if c.there != "" {
			if err := os.MkdirAll(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			saveFile(t, filepath.Join(dir, c.there), "before")
		}
		before := tree(t, root)
		a := &app{stderr: io.Discard}
		if err := a.writeFolder(t.Context(), dir, files(text("1"), full)); err == nil {
			t.Errorf("%s: no error", c.dir)
		}
		after := tree(t, root)
		if fmt.Sprint(before) != fmt.Sprint(after) || a.written != 0 || len(a.parts) != 0 {
			t.Errorf("%s: a failure left %q, expected %q", c.dir, after, before)
		}
		if err := a.writeFolder(t.Context(), dir, files(text("1"), text("2"))); err != nil || a.written != 2 {
			t.Errorf("%s: %v, %d files written", c.dir, err, a.written)
		}
		if readFile(t, filepath.Join(dir, "one")) != "1" || readFile(t, filepath.Join(dir, "two")) != "2" {
			t.Errorf("%s: the files hold something else", c.dir)
		}
	}
}

// tree returns all files and folders under a folder, with the files' contents.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[path] = readFile(t, path)
		} else {
			all[path] = "folder"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDumpLeavesNoPart checks that if one file of a dump cannot be written, none is.
func TestDumpLeavesNoPart(t *testing.T) {
	dir := t.TempDir()
	fresh := filepath.Join(dir, "fresh")
	ok(t, "dump", "demo", "--ids", "1,2", "-o", fresh)
	want := contents(t, fresh)
	for _, file := range []string{"tokens.npy", "logits.npy", "layer_03.npy"} {
		// A folder has the file's temporary name.
		block := filepath.Join(fresh, fmt.Sprintf("%s.%d.tmp", file, os.Getpid()))
		if err := os.Mkdir(block, 0o777); err != nil {
			t.Fatal(err)
		}
		pesti("dump", "demo", "--ids", "3,4,5", "-o", fresh).fails(t, exitError, file+": cannot be written")
		if err := os.Remove(block); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, fresh); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s cannot be written: other files of the folder changed", file)
		}
	}
}

// A stopper is standard output; it cancels a command at the first byte.
type stopper struct{ cancel func() }

func (s stopper) Write(b []byte) (int, error) { s.cancel(); return len(b), nil }

// TestTraceInterrupted checks that an interrupted command writes the trace so far, or says that it
// writes none.
func TestTraceInterrupted(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		args     string
		after    time.Duration // until the interrupt; −1: at the first byte of output
		promised []string
	}{
		{"run demo -p Once -n 50 --passes none --trace TRACE --profile PROFILE", -1, []string{"PROFILE"}},
		{"run demo -p Once -n 50 --trace TRACE --profile PROFILE", 0, []string{"TRACE", "PROFILE"}},
		{"bench demo -p 0 -n 4 -r 1000000 --trace TRACE", 2 * time.Second, nil},
		{"bench demo -p 0 -n 4 --trace TRACE --profile PROFILE", 0, []string{"TRACE", "PROFILE"}},
	} {
		trace, file := filepath.Join(dir, fmt.Sprint("trace", i)), filepath.Join(dir, fmt.Sprint("profile", i))
		names := strings.NewReplacer("TRACE", trace, "PROFILE", file)
		ctx, cancel := context.WithCancel(t.Context())
		out := io.Writer(stopper{cancel})
		if c.after == 0 {
			cancel()
		} else if c.after > 0 {
			out = io.Discard
			time.AfterFunc(c.after, cancel)
		}
		var said strings.Builder
		code := run(ctx, strings.Fields(names.Replace(c.args)), strings.NewReader(""), out, &said, os.Getenv)
		cancel()
		if code != exitInterrupted {
			t.Errorf("%s: exit code %d, says %q", c.args, code, &said)
		}
		for _, p := range c.promised {
			if words := names.Replace(p) + " is not written, since the run did not end\n"; !strings.Contains(said.String(), words) {
				t.Errorf("%s: says %q, expected %q", c.args, &said, words)
			}
			if _, err := os.Stat(names.Replace(p)); err == nil {
				t.Errorf("%s: %s is there", c.args, p)
			}
		}
		if len(c.promised) > 1 {
			continue
		}
		var events struct{ TraceEvents []profile.TraceEvent }
		if err := json.Unmarshal([]byte(readFile(t, trace)), &events); err != nil || len(events.TraceEvents) < 40 {
			t.Errorf("%s: a trace of %d events, %v", c.args, len(events.TraceEvents), err)
		}
		if !strings.Contains(said.String(), trace+" has the trace up to that point\n") {
			t.Errorf("%s: says %q", c.args, &said)
		}
	}
}
