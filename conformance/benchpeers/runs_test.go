package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMain lets the test binary act as the measured programs. The name of the executable selects
// the program. A file in its folder records the command lines.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == probeFlag { // benchpeers runs itself
		main()
		return
	}
	if play, ok := parts[filepath.Base(os.Args[0])]; ok {
		os.Exit(play(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// parts are the actions of each program, by its name.
var parts = map[string]func([]string) int{
	"pesti": func(args []string) int {
		note("pesti", args)
		switch args[0] {
		case "version":
			fmt.Println("pesti v1")
		case "inspect":
			room := args[slices.Index(args, "-c")+1]
			fmt.Printf(`{"plans": [{"precision": "fast", "ctx": 512, "state": 1, "arena": 1}, {"precision": "fast", "ctx": %s, "state": 100, "arena": 20}]}`, room)
		case "bench":
			playBench(args, 20)
		}
		return 0
	},
	"llama-bench": func(args []string) int {
		note("llama-bench", args)
		if args[0] == "--help" {
			fmt.Println("  -n, --n-gen <n>\n  -d, --n-depth <n>")
			return 0
		}
		if slices.Contains(args, "broken.gguf") {
			fmt.Fprintln(os.Stderr, "loading\ncannot load it")
			return 3
		}
		playBench(args, 10)
		return 0
	},
	"ik-bench": func(args []string) int { // a fork without -d, which prints messages before the JSON
		note("ik-bench", args)
		if args[0] == "--help" {
			fmt.Fprintln(os.Stderr, "  -n, --n-gen <n>\n  -gp <pp,tg>")
			return 1
		}
		fmt.Println("repacked 3 tensors")
		t := test{}
		fmt.Sscan(args[slices.Index(args, "-p")+1], &t.NPrompt)
		fmt.Sscan(args[slices.Index(args, "-n")+1], &t.NGen)
		if i := slices.Index(args, "-gp"); i >= 0 {
			fmt.Sscanf(args[i+1], "%d,%d", &t.NPrompt, &t.NGen)
		}
		fmt.Printf("[\n  {\n    \"build_commit\": \"abc\",\n    \"build_number\": 7,\n    \"n_prompt\": %d,\n    \"n_gen\": %d,\n    \"samples_ts\": [ 40 ]\n  }\n]\n", t.NPrompt, t.NGen)
		return 0
	},
	"no-bench": func([]string) int { return 0 },
	"llama-completion": func(args []string) int {
		note("llama-completion", args)
		return 0
	},
}

// playBench prints the output of bench, with a speed that the test recognizes.
func playBench(args []string, speed float64) {
	t := test{}
	for flag, to := range map[string]*int{"-p": &t.NPrompt, "-n": &t.NGen, "-d": &t.NDepth} {
		fmt.Sscan(args[slices.Index(args, flag)+1], to)
	}
	b := benched{test: t, Samples: []float64{speed + float64(t.NDepth)}}
	if slices.Contains(args, "--roofline") {
		b.Samples[0]++ // must not be used
		b.Roofline = &limit{100, 0.25}
	}
	json.NewEncoder(os.Stdout).Encode([]benched{b})
}

func note(name string, args []string) {
	f, err := os.OpenFile(filepath.Join(filepath.Dir(os.Args[0]), "notes"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, name, strings.Join(args, " "))
}

// stage creates a folder with the programs and a model, and changes into it.
func stage(t *testing.T) {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name := range parts {
		if err := os.Symlink(own, filepath.Join(dir, name)); err != nil {
			t.Skip(err) // the system has no links
		}
	}
	for name, text := range map[string]string{
		"build.json": `{"package": "p==1", "compilers": ["c 16", "c++ 16"]}`,
		"m.gguf":     "model", "broken.gguf": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func measureStaged(args ...string) (*report, string, error) {
	var out, said strings.Builder
	err := run(context.Background(), append([]string{"-pesti", "./pesti", "-json", "r.json"}, args...), &out, &said)
	if err != nil {
		return nil, out.String(), err
	}
	r, err := readReport("r.json")
	return r, out.String(), err
}

func TestPairedRuns(t *testing.T) {
	stage(t)
	r, out, err := measureStaged("-peer", ".", "-rounds", "2", "-prompts", "512", "-depths", "0,300", "-threads", "3", "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("notes")
	if err != nil {
		t.Fatal(err)
	}
	start := "pesti run m.gguf -p Once upon a time -n 1 --temp 0 -t 3 -c 4096\n" +
		"llama-completion -m m.gguf -p Once upon a time -n 1 --temp 0 -t 3 -c 4096 -no-cnv\n"
	bench := func(flags string) string {
		return "pesti bench m.gguf --json -r 1 -t 3 -c 4096 " + flags + "\nllama-bench -m m.gguf -o json -r 1 -t 3 " + flags + "\n"
	}
	decode := func(flags string) string {
		return bench(flags) + "pesti bench m.gguf --json -r 1 -t 3 -c 4096 " + flags + " --roofline\n"
	}
	round := strings.Repeat(start, startsPerRound) + bench("-p 512 -n 0 -d 0") + decode("-p 0 -n 128 -d 0") + decode("-p 0 -n 128 -d 300")
	want := "pesti version\npesti inspect m.gguf --memory --json --precision fast -t 3 -c 4096\n" + start + round + round
	if string(text) != want {
		t.Errorf("the runs were\n%swant\n%s", text, want)
	}
	m := r.Models[0]
	if m.File != "m.gguf" || m.Size != 5 || m.Needs != 120 || len(m.Tests) != 3 || r.Threads != 3 {
		t.Errorf("the report is %+v", r)
	}
	for i, base := range []float64{0, 0, 300} {
		x := m.Tests[i]
		if !slices.Equal(x.Ours.Values, []float64{20 + base, 20 + base}) || !slices.Equal(x.Theirs.Values, []float64{10 + base, 10 + base}) {
			t.Errorf("%s: %+v", x.test, x)
		}
	}
	if got := m.Tests; len(got[0].Limits) != 0 || !slices.Equal(got[2].Limits, []limit{{100, 0.25}, {100, 0.25}}) {
		t.Errorf("the limits of %s are %v, of %s %v", got[0].test, got[0].Limits, got[2].test, got[2].Limits)
	}
	for name, s := range map[string]samples{"ours": m.Start.Ours, "theirs": m.Start.Theirs} {
		if len(s.Values) != 2*startsPerRound || slices.Min(s.Values) <= 0 {
			t.Errorf("starts of %s: %+v", name, s)
		}
	}
	if want := regexp.MustCompile(`\| m \| tg128 @ d300 \| 320.0 \| 310.0 \| 1.03 \| - \| - \| \d+\.\d \| 100.0 \| 0.25 \|`); !want.MatchString(out) {
		t.Errorf("it prints\n%swithout %q", out, want)
	}
	for _, x := range m.Tests { // before and after each of two rounds
		if len(x.Read) != 4 || slices.Min(x.Read) <= 0 {
			t.Errorf("%s: the read bandwidths are %v", x.test, x.Read)
		}
	}
}

// TestPeakWithoutProbe checks that the probe's buffer does not count in the peak memory of the programs.
func TestPeakWithoutProbe(t *testing.T) {
	stage(t)
	const size = 96 << 20
	if err := os.Truncate("m.gguf", size); err != nil {
		t.Fatal(err)
	}
	r, _, err := measureStaged("-peer", ".", "-rounds", "1", "-prompts", "512,32", "-depths", "0", "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if ours, theirs := r.Models[0].peaks(); ours > size/2 || theirs > size/2 {
		t.Errorf("the peaks are %d and %d bytes, and the buffer has %d", ours, theirs, size)
	}
}

// TestLlamaBenchByPath measures llama-benches that build.py did not make, one of them a fork without -d.
func TestLlamaBenchByPath(t *testing.T) {
	stage(t)
	r, out, err := measureStaged("-peer", "./llama-bench", "-peer", "ik=./ik-bench", "-rounds", "1", "-prompts", "512", "-depths", "0,300", "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if r.Theirs == nil || *r.Theirs != (program{"llama-bench", "0"}) || !slices.Equal(r.Others, []program{{"ik", "7 abc"}}) {
		t.Errorf("the peers are %+v and %+v", r.Theirs, r.Others)
	}
	text, err := os.ReadFile("notes")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"ik-bench -m m.gguf -o json -r 1 -t 2 -p 512 -n 0",
		"ik-bench -m m.gguf -o json -r 1 -t 2 -p 0 -n 128",
		"ik-bench -m m.gguf -o json -r 1 -t 2 -p 0 -n 0 -gp 300,128",
		"llama-bench -m m.gguf -o json -r 1 -t 2 -p 0 -n 128 -d 300",
		"llama-completion -m m.gguf -p Once upon a time -n 1 --temp 0 -t 2 -c 4096 -no-cnv",
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("the runs were\n%swithout %q", text, line)
		}
	}
	for _, x := range r.Models[0].Tests {
		if len(x.Others) != 1 || !slices.Equal(x.Others[0].Values, []float64{40}) {
			t.Errorf("%s: of ik there are %+v", x.test, x.Others)
		}
	}
	for _, want := range []string{"and llama-bench (0) and ik (7 abc).", "| llama-bench, tok/s | ratio | required · goal |  | ik, tok/s | pesti ÷ ik |", "| 320.0 | 310.0 | 1.03 | - | - | 40.0 | 8.00 |"} {
		if !strings.Contains(out, want) {
			t.Errorf("it prints\n%swithout %q", out, want)
		}
	}
}

func TestWithoutLlamaCpp(t *testing.T) {
	stage(t)
	r, out, err := measureStaged("-rounds", "1", "-svg", "r.svg", "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if r.Theirs != nil || r.Models[0].Tests[0].Theirs.Values != nil || !strings.Contains(out, "llama.cpp was not measured") {
		t.Errorf("it measured %+v and prints\n%s", r, out)
	}
	if text, err := os.ReadFile("notes"); err != nil || strings.Contains(string(text), "llama") {
		t.Errorf("the runs were\n%s%v", text, err)
	}
}

func TestErrors(t *testing.T) {
	stage(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "found no MODEL"},
		{[]string{"absent.gguf"}, "absent.gguf"},
		{[]string{"-pesti", "./absent", "m.gguf"}, "absent"},
		{[]string{"-peer", "absent", "m.gguf"}, "build.py"},
		{[]string{"-peer", ".", "broken.gguf"}, "cannot load it"},
		{[]string{"-peer", "./no-bench", "m.gguf"}, "has no --n-gen, expected a llama-bench"},
		{[]string{"-peer", "ik=absent", "m.gguf"}, "expected a folder that conformance/llamacpp/build.py made, or a llama-bench"},
		{[]string{"-peer", "ik=.", "m.gguf"}, "found a folder, expected a llama-bench"},
		{[]string{"-peer", "./m.gguf", "m.gguf"}, "m.gguf"},
		{[]string{"-peer", "./llama-bench", "-peer", "./ik-bench", "m.gguf"}, "found the name llama-bench twice"},
		{[]string{"-rounds", "0", "m.gguf"}, "at least 1"},
		{[]string{"-prompts", "1,x", "m.gguf"}, `"x"`},
		{[]string{"-from", "absent.json"}, "absent.json"},
		{[]string{"-from", "m.gguf"}, "m.gguf: expected what -json wrote"},
		{[]string{"-from", "build.json"}, "found no models"},
		{[]string{"-from", "r.json", "m.gguf"}, "expected none"},
	} {
		if _, _, err := measureStaged(c.args...); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one line with %q", c.args, err, c.want)
		}
	}
}

func TestParseBench(t *testing.T) {
	asked := test{NPrompt: 8}
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{`[{"n_prompt": 8, "n_gen": 0, "n_depth": 0, "avg_ts": 3, "samples_ts": [1.5]}]`, true},
		{`[{"n_prompt": 9, "n_gen": 0, "n_depth": 0, "samples_ts": [1.5]}]`, false},
		{`[{"n_prompt": 8, "n_gen": 0, "n_depth": 0, "samples_ts": []}]`, false},
		{"message\n[\n{\"n_prompt\": 8, \"samples_ts\": [1.5]}]", true},
		{`[]`, false},
		{`no JSON`, false},
	} {
		got, err := parseBench([]byte(c.text), asked)
		if (err == nil) != c.ok || c.ok && !slices.Equal(got.Samples, []float64{1.5}) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
	}
}
