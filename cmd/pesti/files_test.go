package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pesti/conformance/testenv"
)

// Every verb, including help, reports a full output by its name.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		testenv.Lacks(t, err)
	}
	defer full.Close()
	const want = "pesti: /dev/full: cannot be written: no space left on device\n"
	getenv := func(string) string { return "" }
	plan := filepath.Join(t.TempDir(), "plan")
	ok(t, "compile", "demo", "-o", plan)
	for _, args := range []string{
		"plan show " + plan, "plan verify " + plan, "--help", "run --help", "help run", "version", "--version", "info", "completion bash",
		"inspect demo", "inspect demo --json", "inspect demo --check", "inspect demo --extract output_norm.weight -o -",
		"compile demo -o -", "convert demo --type f32 -o -", "dot demo", "dot demo --view memory",
		"run -p a -n 1", "compare demo demo --ids 1",
	} {
		var errs bytes.Buffer
		code := run(context.Background(), strings.Fields(args), strings.NewReader(""), full, &errs, getenv)
		if code != exitError || errs.String() != want {
			t.Errorf("pesti %s: exit code %d, says %q, want %d and %q", args, code, &errs, exitError, want)
		}
	}
	for _, args := range []string{
		"compile demo -o /dev/full", "convert demo --type f32 -o /dev/full",
		"inspect demo --extract output_norm.weight -o /dev/full",
	} {
		if r := pesti(strings.Fields(args)...); r.code != exitError || r.err != want {
			t.Errorf("pesti %s: %+v, want exit code %d and %q", args, r, exitError, want)
		}
	}
	if err := aboutWriting(&os.PathError{Op: "write", Path: os.Stdout.Name(), Err: errors.New("x")}); err.Error() != "standard output: cannot be written: x" {
		t.Errorf("standard output is told of as %q", err)
	}
}

// Errors with odd file names take one line, also with an empty name.
func TestOddNames(t *testing.T) {
	odd := filepath.Join(t.TempDir(), "a\n\x1bb")
	for _, args := range [][]string{
		{"compile", "demo", "-o", odd},
		{"plan", "verify", odd},
		{"convert", "demo", "--type", "f32", "-o", odd + ".gguf"},
		{"inspect", odd + ".gguf", "--check"},
		{"compare", odd, odd, "--ids", "1"},
		{"compare", odd, odd, "--ids", "1", "--bisect"},
	} {
		r := pesti(args...)
		all := r.out + r.err
		if r.code != 0 || strings.Contains(all, "a\n") || strings.Contains(all, "\x1b") {
			t.Errorf("pesti %q: %+v", args, r)
		}
	}
	for _, args := range []string{"run | -p x", "inspect |", "compile | -o x.plan", "dot |", "plan show |", "tokenize |", "compare demo | --ids 1", "compare | demo --ids 1"} {
		words := strings.Fields(args)
		for i, w := range words {
			words[i] = strings.Trim(w, "|")
		}
		pesti(words...).fails(t, exitError, `pesti: "": cannot be opened: no such file`)
	}
}

// Warnings about a model come before the work on it, and not at all if it does not load.
func TestWarnings(t *testing.T) {
	model := demoFile(t, nil)
	saveFile(t, model, readFile(t, model)+strings.Repeat("x", 100))
	warning := "pesti: warning: " + model + ": 100 bytes after the last tensor are not used\n"
	dir := t.TempDir()
	plan := filepath.Join(dir, "plan")
	for _, args := range [][]string{
		{"compile", model, "-o", plan},
		{"inspect", model},
		{"inspect", model, "--check"},
		{"run", model, "-p", "a", "-n", "1"},
		{"run", plan, "-p", "a", "-n", "1"},
		{"dump", model, "--ids", "1", "-o", filepath.Join(dir, "values")},
		{"check", model, "--ids", "1"},
		{"dot", model},
		{"tokenize", model},
		{"convert", model, "--type", "f32", "-o", filepath.Join(dir, "f32.gguf")},
		{"compare", "demo", model, "--ids", "1"},
	} {
		if r := pesti(args...); r.code != 0 || !strings.HasPrefix(r.err, warning) || strings.Count(r.err, "warning") != 1 {
			t.Errorf("pesti %q: exit code %d, says %q, want %q first", args, r.code, r.err, warning)
		}
	}
	for _, args := range [][]string{
		{"run", model, "-p", "a", "--ctx", "1000000"},
		{"dump", model, "--ids", "99999999999", "-o", dir},
		{"compare", model, filepath.Join(dir, "none"), "--ids", "1"},
		{"compile", model, "-o", model},
	} {
		if r := pesti(args...); r.code == 0 || strings.Count(r.err, "\n") != 1 {
			t.Errorf("pesti %q: exit code %d, says %q, want one line", args, r.code, r.err)
		}
	}

	// A long-running verb prints its warnings first: here both outputs go to the same buffer.
	var both bytes.Buffer
	code := run(context.Background(), []string{"run", model, "-p", "a", "-n", "1"}, strings.NewReader(""), &both, &both, os.Getenv)
	if code != 0 || !strings.HasPrefix(both.String(), warning) {
		t.Errorf("run prints %q, want the warning before the text", &both)
	}
}
