package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/testenv"
)

// These are the completions that shells get, and whether they include files.
func TestCompletions(t *testing.T) {
	const noFiles, endings, folders, files = ":4", ":8", ":16", ":0"
	t.Chdir(t.TempDir())
	for _, name := range []string{"demo.gguf", "a.plan", "notes.txt", ".hidden.gguf"} {
		saveFile(t, name, "")
	}
	if err := os.Mkdir("folder", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line string // _ is an empty word at the cursor
		want string // some completions, and last the kind of files
	}{
		{"_", "run compile completion " + noFiles},
		{"pl", "plan " + noFiles},
		{"plan _", "show diff verify " + noFiles},
		{"run _", "demo a.plan demo.gguf folder/ :6"},
		{"run d", "demo demo.gguf " + noFiles},
		{"run demo.", "gguf plan " + endings},
		{"run folder/", "gguf plan " + endings},
		{"run demo _", noFiles},
		{"inspect _", "demo demo.gguf folder/ :6"},
		{"inspect dem", "demo demo.gguf " + noFiles},
		{"plan show _", "plan " + endings},
		{"plan diff a.plan _", "plan " + endings},
		{"compare _", "demo a.plan folder/ :6"},
		{"compare a.plan _", "demo demo.gguf folder/ :6"},
		{"compare demo demo --but _", "precision= passes= kv= :6"},
		{"compare demo demo --but precision=", "precision=exact precision=fast " + noFiles},
		{"compare demo demo --but passes=-cse,-f", "passes=-cse,-fold :6"},
		{"compare demo demo --but ctx=", noFiles},
		{"compare demo demo --but bogus=", noFiles},
		{"dot demo --program _", "decode small prefill " + noFiles},
		{"info _", noFiles},
		{"completion _", "bash zsh fish powershell " + noFiles},
		{"run --precision _", "exact fast " + noFiles},
		{"dot --stage f", "fused " + noFiles},
		{"run --temp _", noFiles},
		{"run --model _", "gguf " + endings},
		{"compile demo -o _", files},
		{"compile demo --dump _", folders},
		{"run --passes=_", "none -cse -fuse_gated_mlp :6"},
		{"run --passes=-cse,-f", "-cse,-fold -cse,-fuse_gated_mlp :6"},
	} {
		args := append([]string{"__completeNoDesc"}, strings.Fields(strings.ReplaceAll(c.line, "_", " _"))...)
		if last := &args[len(args)-1]; strings.HasSuffix(c.line, "=_") {
			args = append(args[:len(args)-2], strings.TrimSuffix(c.line[strings.LastIndexByte(c.line, ' ')+1:], "_"))
		} else if *last == "_" {
			*last = ""
		}
		got := strings.Fields(ok(t, args...))
		if slices.Contains(got, "notes.txt") || slices.Contains(got, ".hidden.gguf") {
			t.Errorf("%q: completions are %q, expected models, plans and folders", c.line, got)
		}
		want := strings.Fields(c.want)
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%q: completions are %q, expected %q among them", c.line, got, w)
			}
		}
		if got[len(got)-1] != want[len(want)-1] {
			t.Errorf("%q: the kind of files is %s, expected %s", c.line, got[len(got)-1], want[len(want)-1])
		}
		if slices.Sort(got); len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("%q: completions are %q, expected each once", c.line, got)
		}
	}
	if got := ok(t, "__completeNoDesc", "run", "--passes=-cse,-c"); strings.Contains(got, "-cse,-cse") {
		t.Errorf("completions of --passes=-cse,-c are %q, expected no pass twice", got)
	}
}

// The scripts call the program, and bash can read its own.
func TestCompletionScripts(t *testing.T) {
	for _, s := range shells {
		if out := ok(t, "completion", s.name); !strings.Contains(out, "pesti") || !strings.Contains(out, "__complete") {
			t.Errorf("completion %s prints %.200q", s.name, out)
		}
	}
	pesti("completion", "tcsh").fails(t, exitUsage, `"tcsh"`, "bash, zsh, fish, powershell")
	pesti("completion").fails(t, exitUsage, "0 arguments")
	bash, err := exec.LookPath("bash")
	if err != nil {
		testenv.Lacks(t, "bash is missing")
	}
	cmd := exec.Command(bash, "--norc", "-c", `source /dev/stdin && complete -p pesti`)
	cmd.Stdin = strings.NewReader(ok(t, "completion", "bash"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "complete ") {
		t.Errorf("bash: %v: %s", err, out)
	}
}
