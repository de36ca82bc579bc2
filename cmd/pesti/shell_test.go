package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"pesti/gguf"
)

// longDemo writes the demo, with metadata that claims a context of 4096 positions, to a file of that name.
func longDemo(t *testing.T, path string) {
	t.Helper()
	long := rewrittenDemo(t, true, func(w *gguf.Writer) { w.SetUint32("qwen2.context_length", 4096) })
	saveFile(t, path, readFile(t, long))
}

// TestExamples runs the examples in the help of each verb, in a folder with their input files. A
// verb without an example fails the test.
func TestExamples(t *testing.T) {
	t.Chdir(t.TempDir())
	longDemo(t, "demo.gguf")
	ran := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.HasSubCommands() || cmd.Name() == "help" {
			return
		}
		before := ran
		for line := range strings.Lines(cmd.Example) {
			input, line, found := strings.Cut(strings.TrimSpace(line), "pesti ")
			if !found {
				t.Errorf("%s: the example %q does not call pesti", cmd.CommandPath(), input)
				continue
			}
			args := word.FindAllString(line, -1)
			for i, w := range args {
				args[i] = strings.Trim(w, `"'`)
				if i > 0 && (args[i-1] == "-o" || args[i-1] == "--dump") {
					continue
				}
				if _, err := os.Stat(w); err == nil {
					continue
				}
				switch name := strings.TrimSuffix(w, filepath.Ext(w)); {
				case w == "FOLDER":
					ok(t, "dump", "model.gguf", "-p", story, "-o", w)
				case w == name+".gguf":
					saveFile(t, w, readFile(t, "demo.gguf"))
				case w == name+".plan":
					ok(t, "compile", "model.gguf", "-o", w)
				case w == name+".txt":
					saveFile(t, w, story)
				}
			}
			if input != "" && !strings.HasSuffix(input, "| ") {
				t.Errorf("%s: the example has %q before pesti", cmd.CommandPath(), input)
			}
			if r := (call{stdin: story, args: args}).run(); r.code != 0 || r.out == "" && r.err == "" && !strings.Contains(line, " -o ") && cmd.Name() != "diff" {
				t.Errorf("pesti %s: exit code %d, prints %q, says %q", line, r.code, r.out, r.err)
			}
			ran++
		}
		if ran == before {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
	}
	saveFile(t, "model.gguf", readFile(t, "demo.gguf"))
	walk((&app{}).root())
	if ran < 12 {
		t.Errorf("only %d examples ran", ran)
	}
}

// An interrupt ends long-running verbs with exit code 130 and their results so far, and leaves no
// file.
func TestInterruptedVerbs(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	ids := strings.TrimSuffix(strings.Repeat("1,", 500), ",")
	for _, c := range []struct {
		args  []string
		after time.Duration
	}{
		{[]string{"bench", "demo", "-p", "500", "-n", "0", "--passes", "none"}, 0},
		{[]string{"dump", "demo", "--ids", ids, "-o", out, "--passes", "none"}, 100 * time.Millisecond},
		{[]string{"dump", "demo", "--ids", ids, "-o", out}, 0},
		{[]string{"dump", "demo", "-p", story, "-o", out}, 0},
		{[]string{"check", "demo", "-p", story}, 0},
		{[]string{"compile", "demo", "-o", out}, 0},
		{[]string{"convert", "demo", "--type", "f32", "-o", out}, 0},
		{[]string{"dot", "demo", "-o", out + ".dot"}, 0},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		if c.after == 0 {
			cancel()
		}
		timer := time.AfterFunc(c.after, cancel)
		r := call{ctx: ctx, args: c.args}.run()
		timer.Stop()
		cancel()
		says := ""
		if at := slices.Index(c.args, "-o"); at > 0 {
			says = "pesti: interrupted; nothing was written to " + c.args[at+1] + "\n"
		}
		if r.code != exitInterrupted || r.err != says {
			t.Errorf("pesti %.60q: %+v, expected exit code %d and %q", c.args, r, exitInterrupted, says)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("pesti %.60q left %s", c.args, out)
		}
	}
	// Earlier output is kept, too.
	var errs bytes.Buffer
	a := &app{stderr: &errs, written: 3}
	verb := a.dump()
	if err := verb.Flags().Set("output", out); err != nil {
		t.Fatal(err)
	}
	if a.tellWritten(verb); errs.String() != "pesti: interrupted; 3 files were written to "+out+"\n" {
		t.Errorf("after three files it says %q", &errs)
	}
	// Earlier measurements are printed and are in the trace.
	var printed, said bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.AfterFunc(2*time.Second, cancel)
	code := run(ctx, []string{"bench", "demo", "-p", "1", "-n", "1", "-r", "1000000", "--trace", out}, nil, &printed, &said, os.Getenv)
	if text := printed.String(); code != exitInterrupted || !strings.Contains(text, "pp1") || strings.Contains(text, "tg1") {
		t.Errorf("bench: exit code %d, prints %q, expected the first test alone", code, text)
	}
	if want := "pesti: " + out + " has the trace up to that point\n"; said.String() != want {
		t.Errorf("bench says %q, expected %q", &said, want)
	}
}

// Every verb that writes much ends quietly when the reader closes the pipe.
func TestClosedPipes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("pipes that are closed say something else")
	}
	model := demoFile(t, nil)
	for _, args := range []string{
		"inspect MODEL", "inspect MODEL --json --tensors", "compile MODEL -o -", "dot MODEL --all", "completion bash",
		"inspect MODEL --extract token_embd.weight -o -",
	} {
		p := start(t, strings.Fields(strings.ReplaceAll(args, "MODEL", model))...)
		p.read(t, 10)
		p.out.Close()
		code := p.exitCode()
		says := p.err.String()
		if code != 0 || says != "" && !(strings.HasPrefix(args, "compile") && strings.Count(says, "\n") == 1) {
			t.Errorf("pesti %s | head -c 10: exit code %d, says %q", args, code, says)
		}
	}
}

// File names of any kind work: with spaces, non-ASCII characters, and a leading dash.
func TestFileNames(t *testing.T) {
	t.Chdir(t.TempDir())
	model := readFile(t, demoFile(t, nil))
	want, _ := runs(t, "-p", story, "--temp", "0", "-n", "4")
	for _, name := range []string{"two words", " ", "naïve 東京 🚀", "-p", "--help", "%s$HOME;'\"", "a,b=c"} {
		gguf, plan := name+".gguf", name+".plan"
		saveFile(t, gguf, model)
		ok(t, "compile", "-o", plan, "--", gguf)
		for _, file := range []string{gguf, plan} {
			if got := ok(t, "run", "-p", story, "--temp", "0", "-n", "4", "--", file); got != want {
				t.Errorf("run -- %q prints %q, expected %q", file, got, want)
			}
		}
		if got := ok(t, "plan", "verify", "--model", gguf, "--", plan); got != plan+": ok, for "+gguf+"\n" {
			t.Errorf("plan verify %q prints %q", plan, got)
		}
	}
}

// Without a terminal the output has no colors and no progress, with and without NO_COLOR. Neither
// a home folder nor a cache folder is needed.
func TestPlainOutput(t *testing.T) {
	model := demoFile(t, nil)
	for _, env := range [][]string{nil, {"NO_COLOR=1", "TERM=dumb"}, {"HOME=" + filepath.Join(model, "no folder"), "XDG_CACHE_HOME=/dev/null"}, {"HOME=", "PATH="}} {
		for _, args := range [][]string{
			{"run", model, "-p", story, "-n", "3", "--temp", "0"},
			{"--help"}, {"info"}, {"inspect", model}, {"plan", "show", model}, {"dot", model},
		} {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self, args...)
			cmd.Env = append(append(os.Environ(), mainVariable+"=1"), env...)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 0 && args[0] != "plan" {
				t.Errorf("%q pesti %q: exit code %d: %s", env, args, code, out)
			}
			if text := string(out); strings.ContainsAny(text, "\x1b\r\b") || text == "" {
				t.Errorf("%q pesti %q prints %q, expected plain text", env, args, text)
			}
		}
	}
}

// A plan on standard output equals a plan in a file, except for the path of its model.
func TestPlanToStandardOutput(t *testing.T) {
	t.Chdir(t.TempDir())
	saveFile(t, "m.gguf", readFile(t, demoFile(t, nil)))
	ok(t, "compile", "m.gguf", "-o", "file.plan")
	if got := ok(t, "compile", "m.gguf", "-o", "-"); got != readFile(t, "file.plan") {
		t.Errorf("-o - prints another plan: %.200q", got)
	}
	if files, _ := filepath.Glob("*"); len(files) != 2 {
		t.Errorf("there are %q, expected no third file", files)
	}
}
