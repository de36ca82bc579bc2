package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/cpu/isa"
	planfile "pesti/exec/plan"
	"pesti/gguf"
)

// A result holds the outputs and the exit code of a command line.
type result struct {
	code     int
	out, err string
}

// A call is a command line with its environment.
type call struct {
	ctx   context.Context
	stdin string
	env   map[string]string
	args  []string
}

func (c call) run() result {
	var out, errs bytes.Buffer
	if c.ctx == nil {
		c.ctx = context.Background()
	}
	code := run(c.ctx, c.args, strings.NewReader(c.stdin), &out, &errs, func(key string) string {
		if v, ok := c.env[key]; ok || key != tuneVariable {
			return v
		}
		return tuneOff
	})
	return result{code, out.String(), errs.String()}
}

// pesti runs a command line.
func pesti(args ...string) result { return call{args: args}.run() }

// ok runs a command line that must succeed, and returns its output.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	r := pesti(args...)
	if r.code != 0 {
		t.Fatalf("pesti %q: exit code %d: %s", args, r.code, r.err)
	}
	return r.out
}

// decoded returns a command's JSON output.
func decoded[T any](t *testing.T, args ...string) *T {
	t.Helper()
	found := new(T)
	if err := json.Unmarshal([]byte(ok(t, args...)), found); err != nil {
		t.Fatal(err)
	}
	return found
}

// fails requires an exit code, one line on standard error that holds all the words, and nothing
// on standard output.
func (r result) fails(t *testing.T, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d: %s", r.code, code, r.err)
	}
	if r.out != "" {
		t.Errorf("standard output has %q, want nothing", r.out)
	}
	lines := strings.Split(strings.TrimSuffix(r.err, "\n"), "\n")
	last := lines[len(lines)-1]
	if len(lines) != 1 || !strings.HasPrefix(last, "pesti: ") {
		t.Errorf("standard error is %q, want one line that begins with pesti:", r.err)
	}
	for _, w := range words {
		if !strings.Contains(last, w) {
			t.Errorf("the error is %q, want it to hold %q", last, w)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func saveFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// demoFile writes the demo model to a file, after edit has changed its bytes.
func demoFile(t *testing.T, edit func(b []byte)) string {
	t.Helper()
	b := demo.GGUF()
	if edit != nil {
		edit(b)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	saveFile(t, path, string(b))
	return path
}

// rewrittenDemo writes the demo model with other metadata and, if asked, without tensors.
func rewrittenDemo(t *testing.T, tensors bool, edit func(w *gguf.Writer), without ...string) string {
	t.Helper()
	f, err := gguf.Parse(demoName, demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	w := gguf.NewWriter()
	for _, key := range f.Keys() {
		if v, _ := f.Value(key); !slices.Contains(without, key) {
			w.Set(key, v)
		}
	}
	if edit != nil {
		edit(w)
	}
	if tensors {
		for _, x := range f.Tensors() {
			w.AddTensor(x.Name, x.Type, x.Dims, f.Bytes(&x))
		}
	}
	path := filepath.Join(t.TempDir(), "rewritten.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUsageErrors(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "demo.plan")
	ok(t, "compile", "demo", "-o", plan, "-t", "2", "--ctx", "64")
	model := demoFile(t, nil)
	for _, c := range []struct {
		args  string // separated by spaces; _ is an empty argument
		words string
	}{
		{"bogus", `"bogus"`},
		{"plan bogus", `"bogus"`},
		{"--bogus", "--bogus"},
		{"run --bogus", "--bogus"},
		{"run", "-p TEXT"},
		{"run demo", "-p TEXT"},
		{"run -p a -f b", "-p TEXT"},
		{"run demo demo -p a", "2 arguments"},
		{"run -p a -n -2", `"-2"`},
		{"run -p a -n many", `"many"`},
		{"run -p a --temp warm", `"warm"`},
		{"run -p a --temp NaN", "temp"},
		{"run -p a --temp -1", "--temp -1: expected 0 or more"},
		{"run -p a --top-k -3", "--top-k -3: expected 0 or more"},
		{"run -p a --top-p 2", "--top-p 2: expected 0 to 1"},
		{"run -p a --min-p -1", "--min-p -1: expected 0 to 1"},
		{"run -p a --min-p 7", "--min-p 7: expected 0 to 1"},
		{"run -p a --repeat-penalty 0", "repeat"},
		{"run -p a --stats xml", "expected one of json"},
		{"run -p a --threads 0", "1 or more"},
		{"run -p a -t -1", "1 or more"},
		{"run -p a -t x", `--threads: found "x", expected an integer, 1 or more`},
		{"bench demo -t 0", `--threads: found "0", expected an integer, 1 or more`},
		{"compile demo -o x.plan -t 10000", "demo: --threads is 10000, expected 1 to 1024"},
		{"run --file=", "--file is empty, expected a FILE"},
		{"run -p a --weights=", "--weights is empty, expected a FILE.safetensors"},
		{"plan verify PLAN --model=", "--model is empty, expected a MODEL"},
		{"compile demo -o x.plan --dump=", "--dump is empty"},
		{"run -p a --trace=", "--trace is empty"},
		{"run -p a --trace -", "found -"},
		{"run -p a --trace x --profile=x", "both name x, expected two files"},
		{"run -p a --trace-runs 3", "expected --trace FILE too"},
		{"run PLAN -p a --trace PLAN", "is read by this command"},
		{"run -p a --split tensor", "expected --devices 2 or more"},
		{"bench demo --device virtual --roofline", "--roofline measures the processor"},
		{"bench demo --device virtual --profile -r 3", "each test runs once"},
		{"run -p a --speculate -1", "0 or more"},
		{"run -p a --speculate x", "0 or more"},
		{"run -p a --speculate 31", "--speculate is 31, expected at most 30"},
		{"run -p a --speculate 4 --ubatch 4", "--speculate is 4, expected at most 3: the plan of demo"},
		{"run PLAN -p a --speculate 8", "--speculate is 8, expected at most 7: the plan of "},
		{"run -p a --precision half", "expected one of exact, fast"},
		{"run -p a --kv q4_0", "expected one of f32, f16, fp8, q8_0"},
		{"run -p a --target gpu", "expected one of cpu"},
		{"run -p a --isa sse2", "expected one of portable, neondot, avx2, avx512vnni, amx"},
		{"run -p a --ctx 0", "1 or more"},
		{"run -p a --ctx 1000000", "demo: --ctx is 1000000, expected 1 to 512, the context"},
		{"run -p a --stop _", "--stop is empty"},
		{"run -p a --sequences 600", "demo: --sequences is 600, expected at most --ubatch 512"},
		{"run -p a --sequences 1000000000000", "--sequences"},
		{"run -p a --threads 100000", "--threads"},
		{"run -p a --ubatch 9000000000000000000", "--ubatch"},
		{"compile demo -o x.plan --values [bad", "demo: --values: pattern \"[bad\": "},
		{"compile demo -o x.plan --values blk.99.*", "demo: --values: pattern \"blk.99.*\" matches no value"},
		{"dump demo --ids 1 -o x --values blk.9.*", "demo: --values: pattern \"blk.9.*\" matches no value"},
		{"run -p a --ubatch 0", "1 or more"},
		{"run -p a --sequences 0", "1 or more"},
		{"run -p a --ubatch 2 --sequences 3", "at most --ubatch 2"},
		{"run -p a --passes fuse_gated_mlp", "-fuse_gated_mlp"},
		{"run -p a --passes -bogus", "demo: --passes: "},
		{"run demo -p a --model demo", "no plan"},
		{"run PLAN -p a --ctx 32", "--ctx"},
		{"run PLAN -p a --ubatch 32", "--ubatch"},
		{"run PLAN -p a --sequences 1", "--sequences"},
		{"run PLAN -p a --precision fast", "--precision"},
		{"run PLAN -p a --kv f16", "--kv"},
		{"run PLAN -p a --isa portable", "--isa"},
		{"run PLAN -p a --target cpu", "--target"},
		{"run PLAN -p a --passes none", "--passes"},
		{"dump PLAN -p a -o x --values blk.0.q", "--values is an option of compile"},
		{"run demo -p a --verify", "--verify"},
		{"compare demo demo -p a --dump x", "--dump"},
		{"compare demo demo -p a --but values=blk.0.q", "--but"},
		{"check demo -p a --explain", "--explain"},
		{"bench demo --values blk.0.q", "--values"},
		{"dot demo --dump x", "--dump"},
		{"run PLAN -p a --threads 3", "at most 2"},
		{"bench PLAN --ctx 32", "--ctx"},
		{"bench PLAN -t 3", "at most 2"},
		{"dump PLAN -p a -o x --precision fast", "--precision"},
		{"dot PLAN --ctx 32", "--ctx"},
		{"dot PLAN -t 3", "at most 2"},
		{"dot PLAN --stage graph", "--stage plan"},
		{"dot PLAN --stage fused", "--stage plan"},
		{"dot demo --stage final", "expected one of graph, fused, plan"},
		{"dot demo -o picture.gif", ".svg"},
		{"dot demo --view memory --stage fused", "--stage is fused"},
		{"dot demo --view memory -o picture.dot", ".svg, .png"},
		{"dot demo --view memory --layer 4", "demo: block 4 "},
		{"dot demo --view heat", "expected one of flow, memory"},
		{"dot demo --layer -1", "0 or more"},
		{"dot demo --layer 4", "demo: block 4 "},
		{"dot PLAN --layer 4", "demo.plan: block 4 "},
		{"dot demo --program nope", "demo: program \"nope\""},
		{"dot PLAN --program nope", "demo.plan: program \"nope\""},
		{"dot", "0 arguments"},
		{"compile", "0 arguments"},
		{"compile demo", "-o FILE.plan"},
		{"compile PLAN -o other.plan", "is a plan"},
		{"inspect", "0 arguments"},
		{"inspect PLAN", "is a plan"},
		{"inspect demo --extract x", "-o FILE.npy"},
		{"inspect demo -o x.npy", "--extract TENSOR"},
		{"inspect demo --check --json", "--check"},
		{"tokenize", "0 arguments"},
		{"tokenize demo --detokenize --ids", "--detokenize"},
		{"tokenize demo --detokenize --no-parse-special", "--detokenize"},
		{"dump demo -o x", "-p TEXT"},
		{"dump demo -p a --ids 1 -o x", "-p TEXT"},
		{"dump demo -p a", "-o DIR"},
		{"dump demo --ids _ -o x", "--ids is empty"},
		{"dump demo --ids 1,x -o x", `"x"`},
		{"dump demo --ids 1,-2 -o x", `"-2"`},
		{"bench demo -r 0", "1 or more"},
		{"bench demo -p x", `"x"`},
		{"bench demo -p -1", "pp-1"},
		{"bench demo -p 0 -n 0", "-p or -n"},
		{"plan show", "0 arguments"},
		{"plan verify", "0 arguments"},
		{"plan show demo", "demo: is a GGUF model, expected a plan"},
		{"plan show MODEL", ".gguf: is a GGUF model, expected a plan"},
		{"plan verify MODEL --seal", ".gguf: is a GGUF model, expected a plan"},
		{"bogus --help", `unknown verb "bogus"`},
		{"--help bogus", `unknown verb "bogus"`},
		{"-- bogus", `unknown verb "bogus"`},
		{"plan bogus -h", `unknown verb "bogus"`},
		{"tokenzie --help", `did you mean tokenize?`},
		{"help bogus", `"bogus"`},
		{"help plan bogus", `"plan bogus"`},
		{"help run now", `"run now"`},
		{"info now", "1 argument"},
		{"version now", "1 argument"},
	} {
		args := strings.Fields(c.args)
		for i, a := range args {
			switch a {
			case "PLAN":
				args[i] = plan
			case "MODEL":
				args[i] = model
			case "_":
				args[i] = ""
			}
		}
		t.Run(c.args, func(t *testing.T) {
			r := pesti(args...)
			r.fails(t, 2, c.words, " --help")
			if strings.HasPrefix(r.err, "pesti: pesti") {
				t.Errorf("the error is %q and names the program twice", r.err)
			}
		})
	}
}

func TestAbout(t *testing.T) {
	for _, c := range []struct{ name, err, want string }{
		{"a.gguf", "token id 9", "a.gguf: token id 9"},
		{"a.gguf", "a.gguf: truncated", "a.gguf: truncated"},
		{"a.gguf", "a.gguf2: truncated", "a.gguf: a.gguf2: truncated"},
		{"a.plan", "plan: target is x", "a.plan: target is x"},
		{"a.plan", "a.gguf: has 3 bytes", "a.plan: a.gguf: has 3 bytes"},
		{"plan", "plan: target is x", "plan: target is x"},
	} {
		if got := about(c.name, errors.New(c.err)).Error(); got != c.want {
			t.Errorf("about(%q, %q) = %q, want %q", c.name, c.err, got, c.want)
		}
	}
	if err := about("a", context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt became %v", err)
	}
}

// Each error names each file exactly once.
func TestErrorsNameFilesOnce(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	plan, other, text, none := path("p.plan"), path("other.gguf"), path("text"), path("none")
	ok(t, "compile", "demo", "--isa", "portable", "-o", plan)
	saveFile(t, other, readFile(t, rewrittenDemo(t, true, otherName)))
	saveFile(t, text, "a text that is no model")
	saveFile(t, path("isa.plan"), string(planfile.Seal([]byte(strings.Replace(readFile(t, plan), "cpu portable", "cpu sse9", 1)))))
	for _, c := range []struct {
		args []string
		want string // of the error, after the name of the program
	}{
		{[]string{"run", plan, "--model", other, "-p", "a"}, plan + ": " + other + ": "},
		{[]string{"plan", "verify", plan, "--model", other}, plan + ": " + other + ": the plan is for another model: "},
		{[]string{"run", path("isa.plan"), "-p", "a"}, path("isa.plan") + `: target: instruction set is "sse9"`},
		{[]string{"run", plan, "--model", none, "-p", "a"}, none + ": cannot be opened: no such file"},
		{[]string{"run", none, "-p", "a"}, none + ": cannot be opened: no such file"},
		{[]string{"run", "-f", none}, none + ": cannot be opened: no such file"},
		{[]string{"plan", "show", none}, none + ": cannot be opened: no such file"},
		{[]string{"plan", "verify", none}, none + ": cannot be opened: no such file"},
		{[]string{"dump", "demo", "--ids", "99999", "-o", dir}, "demo: token id 99999, "},
		{[]string{"dump", plan, "--ids", "1", "-o", dir}, plan + ": the plan does not return blk.0.out"},
		{[]string{"run", text, "-p", "a"}, text + `: is not a GGUF file: starts with "a te", expected a GGUF model or a plan`},
		{[]string{"dot", dir}, dir + ": is a directory, expected a GGUF model or a plan"},
		{[]string{"inspect", dir}, dir + ": is a directory, expected a GGUF file"},
		{[]string{"plan", "show", text}, text + ": "},
	} {
		r := pesti(c.args...)
		r.fails(t, 1, "pesti: "+c.want)
		for _, name := range []string{plan, other, text, none, path("isa.plan")} {
			if n := strings.Count(r.err, name); n > 1 || n < 1 && slices.Contains(c.args, name) && !slices.Contains(c.args, none) {
				t.Errorf("%q: the error is %q and names %s %d times", c.args, r.err, name, n)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"", "run", "inspect", "compile", "plan", "plan show", "plan diff", "plan verify", "dot", "tokenize", "dump", "compare", "bench", "info", "version"} {
		r := pesti(append(strings.Fields(args), "--help")...)
		if r.code != 0 || r.err != "" || !strings.Contains(r.out, "Usage:") {
			t.Errorf("pesti %s --help: exit code %d, prints %q, says %q", args, r.code, r.out, r.err)
		}
		if args != "plan" && !strings.Contains(r.out, "Examples:") {
			t.Errorf("pesti %s --help: no example", args)
		}
	}
	for _, args := range []string{"", "run", "plan show"} {
		words := strings.Fields(args)
		if got, want := ok(t, append([]string{"help"}, words...)...), ok(t, append(words, "--help")...); got != want {
			t.Errorf("help %s prints:\n%s\nwant:\n%s", args, got, want)
		}
	}
	for _, args := range [][]string{nil, {"plan"}} {
		r := pesti(args...)
		if r.code != 2 || r.out != "" || !strings.Contains(r.err, "Usage:") || !strings.Contains(r.err, "\npesti: expected a verb; see pesti") {
			t.Errorf("pesti %q: exit code %d, prints %q, says %q", args, r.code, r.out, r.err)
		}
	}
}

func TestVerdict(t *testing.T) {
	plain := errors.New("x")
	for _, c := range []struct {
		err     error
		code    int
		message bool
	}{
		{nil, 0, false},
		{plain, 2, true}, // an error of the parser of the command line
		{failure{plain}, 1, true},
		{failure{fmt.Errorf("x: %w", usage{plain})}, 2, true},
		{failure{context.Canceled}, 130, false},
		{failure{&os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}}, 0, false},
	} {
		if code, message := verdict(c.err); code != c.code || message != c.message {
			t.Errorf("verdict(%#v) = %d, %t, want %d, %t", c.err, code, message, c.code, c.message)
		}
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		"a":                             "a",
		"a\n":                           "a",
		"a\n\tb\r\nc  d":                "a b c  d",
		"naïve \"Ġ\" 東\u2028":           `naïve "Ġ" 東\u2028`,
		"\x1b[2J\x00\a\xff\u202e\ufffd": `\x1b[2J\x00\a\xff\u202e` + "\ufffd",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestInfoAndVersion(t *testing.T) {
	if out := ok(t, "version"); !strings.HasPrefix(out, "pesti ") || strings.Count(out, "\n") != 1 {
		t.Errorf("version prints %q, want one line", out)
	}
	if out := ok(t, "--version"); out != ok(t, "version") {
		t.Errorf("--version prints %q, want what version prints", out)
	}
	out := ok(t, "info")
	for _, word := range []string{"gemma3, llama, qwen2", "Q4_K", "matmul_group", "gemv|gemm.q5_0.q8x2", "\nmemory "} {
		if !strings.Contains(out, word) {
			t.Errorf("info does not print %q", word)
		}
	}
}

// TestInfoOfISAs checks that info prints whether each instruction set is used, and if not, why, and
// the variant in use of each kernel.
func TestInfoOfISAs(t *testing.T) {
	use := func(most string) map[string]string {
		r := call{args: []string{"info"}, env: map[string]string{isaVariable: most}}.run()
		if r.code != 0 {
			t.Fatalf("%s=%s: exit code %d, %s", isaVariable, most, r.code, r.err)
		}
		rows := map[string]string{}
		for line := range strings.Lines(r.out) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			rows[name] = strings.Join(strings.Fields(rest), " ")
		}
		return rows
	}
	best, err := exec.BestISA("")
	if err != nil {
		t.Fatal(err)
	}
	all, capped := use(""), use("portable")
	for _, s := range isa.Detect() {
		built := slices.Contains(exec.BuiltISAs(), s.Name)
		want, wantCapped := "yes", "no: PESTI_ISA allows no more than portable"
		if !built {
			want = "no: this build, for " + runtime.GOARCH + ", has no kernels for it"
		} else if !s.Has {
			want = "no: this machine " + s.Why
		}
		if want != "yes" || s.Name == "portable" {
			wantCapped = want
		}
		if all[s.Name] != want || capped[s.Name] != wantCapped {
			t.Errorf("%s: %q, capped %q, expected %q, capped %q", s.Name, all[s.Name], capped[s.Name], want, wantCapped)
		}
	}
	if got := capped["norm"]; !strings.HasPrefix(got, "portable portable") {
		t.Errorf("of norm portable is used where no more is allowed, info says %q", got)
	}
	if got := capped["activations"]; got != "in fast q8x2" {
		t.Errorf("portable kernels take two planes, info says activations %q", got)
	}
	if got := all["activations"]; best == "avx2" && got != "in fast mixed" {
		t.Errorf("on avx2 two planes are where one costs most, info says activations %q", got)
	}
	used := map[string]string{"avx2": "avx2", "avx512vnni": "avx512vnni", "amx": "avx512vnni"}[best]
	if got, want := all["norm"], used+" portable, avx2, avx512vnni"; used != "" && got != want {
		t.Errorf("on %s info says of norm %q, expected %q", best, got, want)
	}
	r := call{args: []string{"info"}, env: map[string]string{isaVariable: "sse9"}}.run()
	if r.code != 1 || !strings.Contains(r.err, isaVariable+`: instruction set "sse9", expected one of portable, `) {
		t.Errorf("of an unknown set: exit code %d, %q", r.code, r.err)
	}
}
