package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"pesti/conformance/demo"
	"pesti/conformance/testenv"
	planfile "pesti/exec/plan"
	"pesti/gguf"
)

// A hostileFile is a file that no verb can use.
type hostileFile struct {
	name string
	path string
	// opens says that the container is valid, so that a verb which needs no model may succeed.
	opens bool
	words []string // that the error contains, in addition to the file
}

// needNoModel are the verbs that need only a valid file, whether or not it is a model that runs.
var needNoModel = []string{"pesti inspect", "pesti tokenize", "pesti convert"}

// hostileFiles writes all hostile files.
func hostileFiles(t *testing.T) []hostileFile {
	dir := t.TempDir()
	var files []hostileFile
	add := func(name, data string, words ...string) {
		path := filepath.Join(dir, name)
		saveFile(t, path, data)
		files = append(files, hostileFile{name: name, path: path, words: words})
	}
	sound := func(name, path string, words ...string) {
		files = append(files, hostileFile{name, path, true, words})
	}
	u32 := func(x uint32) string { return string(binary.LittleEndian.AppendUint32(nil, x)) }
	u64 := func(x uint64) string { return string(binary.LittleEndian.AppendUint64(nil, x)) }
	header := func(tensors, pairs uint64) string { return "GGUF" + u32(3) + u64(tensors) + u64(pairs) }
	tensor := func(dim uint64, typ uint32) string {
		return u64(1) + "t" + u32(1) + u64(dim) + u32(typ) + u64(0) + strings.Repeat("\x00", 64)
	}

	for _, n := range []int{0, 1, 3, 4, 7, 8, 15, 16, 23} {
		add(fmt.Sprint("header of ", n, " bytes"), header(0, 0)[:n])
	}
	add("web page", "<!DOCTYPE html>\n<html><body>Not found</body></html>")
	add("name\n\x1b[2Jof a terminal", "x")
	add("näme with ünïcode 東", "x")
	add("text", "a text\nof two lines\n")
	add("zeros", strings.Repeat("\x00", 1000))
	add("no line", strings.Repeat("x", 1<<20))
	add("2^59 tensors", header(1<<59, 0), "truncated")
	add("2^58 keys", header(0, 1<<58), "truncated")
	add("a million keys", header(0, 1e6), "truncated")
	add("key of 2^64-1 bytes", header(0, 1)+u64(1<<64-1)+"key", "truncated")
	add("array of 2^61", header(0, 1)+u64(1)+"a"+u32(9)+u32(4)+u64(1<<61), "truncated")
	add("tensor larger than the file", header(1, 0)+tensor(1<<40, 0), `tensor "t": needs`)
	add("tensor of a removed type", header(1, 0)+tensor(32, 4), `tensor "t"`, "removed")
	whole := string(demo.GGUF())
	add("cut by a byte", whole[:len(whole)-32], "truncated") // the last 31 bytes may be padding
	add("cut at half", whole[:len(whole)/2], "truncated")
	add("cut in its metadata", whole[:1000], "truncated")
	add("a text that begins as a plan", "pesti plan 2\n"+strings.Repeat("\x00\x1b[2J", 100))
	plan := filepath.Join(t.TempDir(), "demo.plan")
	ok(t, "compile", "demo", "-o", plan, "-t", "1", "--ctx", "64")
	text := readFile(t, plan)
	add("half a plan", text[:len(text)/2])
	add("plan with another byte", strings.Replace(text, "ctx=64", "ctx=65", 1))
	files = append(files,
		hostileFile{name: "directory", path: dir, words: []string{"directory"}},
		hostileFile{name: "device", path: os.DevNull},
		hostileFile{name: "absent", path: filepath.Join(dir, "no such file"), words: []string{"no such file"}},
	)
	shard := gguf.NewWriter()
	shard.SetUint16("split.no", 1)
	shard.SetUint16("split.count", 3)
	shard.SetInt32("split.tensors.count", 9)
	second := filepath.Join(dir, "m-00002-of-00003.gguf")
	if err := shard.WriteFile(second); err != nil {
		t.Fatal(err)
	}
	files = append(files, hostileFile{name: "shard alone", path: second, words: []string{"2 of 3 shards are missing", "m-00001-of-00003.gguf"}})

	edited := func(edit func(w *gguf.Writer), without ...string) string {
		return rewrittenDemo(t, true, edit, without...)
	}
	sound("no keys and no tensors", filepath.Join(dir, "none.gguf"))
	saveFile(t, filepath.Join(dir, "none.gguf"), header(0, 0))
	sound("empty tensor without data", filepath.Join(dir, "hollow.gguf"))
	saveFile(t, filepath.Join(dir, "hollow.gguf"), header(1, 0)+u64(1)+"t"+u32(2)+u64(0)+u64(5)+u32(0)+u64(0))
	sound("vocabulary", rewrittenDemo(t, false, nil), "no tensors")
	sound("unknown architecture", edited(func(w *gguf.Writer) { w.SetStr("general.architecture", "mamba\x1b[31m\n") }), `architecture "mamba\x1b[31m\n" is not supported; supported are `, "llama")
	sound("architecture of a mixture", edited(func(w *gguf.Writer) { w.SetStr("general.architecture", "qwen2moe") }), `architecture "qwen2moe" is not supported; supported are `)
	sound("mixture of experts", edited(func(w *gguf.Writer) { w.SetUint32("qwen2.expert_count", 8) }), "qwen2.expert_count", "not supported")
	sound("head count 0", edited(func(w *gguf.Writer) { w.SetUint32("qwen2.attention.head_count", 0) }), "qwen2.attention.head_count")
	trailing := edited(func(w *gguf.Writer) { w.SetUint32("qwen2.attention.head_count", 0) }) // a value for which opening the file gives a warning
	saveFile(t, trailing, readFile(t, trailing)+strings.Repeat("x", 100))
	sound("head count 0 and bytes that no tensor has", trailing, "qwen2.attention.head_count")
	sound("block count 2^31", edited(func(w *gguf.Writer) { w.SetUint32("qwen2.block_count", 1<<31) }), "qwen2.block_count")
	return files
}

// A fileCommand is a command line with a place for a file to read.
type fileCommand struct {
	verb string
	args []string
	at   int // index of the file's argument
}

var (
	isInput  = regexp.MustCompile(`\.(gguf|plan)$`)
	takeFile = regexp.MustCompile(`\b(MODEL|PLAN|FILE|A B)\b`)
	word     = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)
)

// fileCommands returns the examples of all verbs, once for each file that they read; the other files of an
// example exist. So a verb that opens files is covered as soon as its help has an example.
func fileCommands(t *testing.T, model, plan string) []fileCommand {
	var all []fileCommand
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.HasSubCommands() {
			return
		}
		before := len(all)
		for line := range strings.Lines(cmd.Example) {
			_, line, found := strings.Cut(strings.TrimSpace(line), "pesti ")
			if !found {
				continue
			}
			args := word.FindAllString(line, -1)
			var inputs []int
			for i, w := range args {
				args[i] = strings.Trim(w, `"'`)
				switch {
				case i > 0 && (args[i-1] == "-o" || args[i-1] == "--output" || args[i-1] == "--dump"):
					args[i] = filepath.Join(t.TempDir(), args[i])
				case strings.HasSuffix(w, ".txt"):
					args[i] = filepath.Join(t.TempDir(), w)
					saveFile(t, args[i], story)
				case isInput.MatchString(w):
					inputs = append(inputs, i)
					args[i] = map[bool]string{true: model, false: plan}[strings.HasSuffix(w, ".gguf")]
				}
			}
			for _, i := range inputs {
				all = append(all, fileCommand{cmd.CommandPath(), slices.Clone(args), i})
			}
		}
		if takeFile.MatchString(cmd.Use) && len(all) == before {
			t.Errorf("%s reads a file, and its help has no example with a .gguf or .plan", cmd.CommandPath())
		}
	}
	walk((&app{}).root())
	return all
}

// costly are the hostile files for which the time and memory of every verb are measured too.
var costly = []string{"2^58 keys", "tensor larger than the file", "cut at half", "head count 0"}

// TestHostileFiles gives every verb every hostile file. It must end in one line that names the
// file, with nothing on standard output, within a second of its processors and 64 MiB.
func TestHostileFiles(t *testing.T) {
	model := demoFile(t, nil)
	plan := filepath.Join(t.TempDir(), "demo.plan")
	ok(t, "compile", model, "-o", plan, "-t", "1", "--ctx", "64")
	files := hostileFiles(t)
	verbs := map[string]bool{}
	for _, c := range fileCommands(t, model, plan) {
		verbs[c.verb] = true
		for _, f := range files {
			args := slices.Clone(c.args)
			args[c.at] = f.path
			t.Run(fmt.Sprintf("%s %d/%s", c.verb, c.at, f.name), func(t *testing.T) {
				r := pesti(args...)
				if f.opens && slices.Contains(needNoModel, c.verb) {
					if r.code != 0 && r.code != exitError {
						t.Errorf("exit code %d: %s", r.code, r.err)
					}
					return
				}
				checkHostile(t, r, &f, &c)
				if slices.Contains(costly, f.name) {
					checkHostile(t, measured(t, args...), &f, &c)
				}
			})
		}
	}
	if len(verbs) < 8 {
		t.Errorf("only %v read files", verbs)
	}
}

// wrongKind matches errors of the command line and not of a file: a file of the other kind, an
// option that does not apply to a plan, or a folder for a verb that also takes folders.
var wrongKind = regexp.MustCompile(`is a GGUF model, expected a plan|is a plan that is compiled already|is a plan, expected a model|is a folder`)

// checkHostile checks a verb's error for a hostile file.
func checkHostile(t *testing.T, r result, f *hostileFile, c *fileCommand) {
	t.Helper()
	path := oneLine(f.path)
	switch {
	case wrongKind.MatchString(r.err):
		r.fails(t, exitUsage, path)
	case f.opens && strings.Contains(r.err, "the plan is for another model"): // the verb compares no more than the model's identity
		r.fails(t, exitError, path)
	default:
		r.fails(t, exitError, append([]string{path}, f.words...)...)
	}
	if !utf8.ValidString(r.err) || strings.ContainsFunc(strings.TrimSuffix(r.err, "\n"), unicode.IsControl) {
		t.Errorf("the error is %q, expected nothing that a terminal obeys", r.err)
	}
}

// Control sequences in a file reach a terminal only as text, in errors and in output.
func TestNamesForATerminal(t *testing.T) {
	const order = "x\x1b[2J\a\r\u202e\x00\xff\vy"
	w := gguf.NewWriter()
	w.SetStr("general.architecture", order)
	w.SetStr("general.name", order)
	w.SetStrs(order, []string{order})
	w.AddTensor("blk.0."+order, 0, []int64{1}, []byte{0, 0, 0xc0, 0x7f}) // NaN
	model := filepath.Join(t.TempDir(), "model.gguf")
	if err := w.WriteFile(model); err != nil {
		t.Fatal(err)
	}
	plan := filepath.Join(t.TempDir(), "demo.plan")
	ok(t, "compile", demoFile(t, nil), "-o", plan, "-t", "1", "--ctx", "64")
	text := regexp.MustCompile(`file="[^"]*"`).ReplaceAllString(readFile(t, plan), `file="x\x1b[2J\u202e\n.gguf"`)
	saveFile(t, plan, string(planfile.Seal([]byte(text))))
	for _, args := range [][]string{
		{"inspect", model},
		{"inspect", model, "--tensors"},
		{"inspect", model, "--json", "--tensors"},
		{"inspect", model, "--check"},
		{"plan", "show", plan},
		{"plan", "show", plan, "--json"},
		{"run", plan, "-p", "a"},
		{"tokenize", model},
	} {
		r := pesti(args...)
		all := strings.ReplaceAll(r.out+r.err, "\n", "")
		if strings.ContainsFunc(all, unicode.IsControl) || !utf8.ValidString(all) || len(all) < 10 {
			t.Errorf("pesti %q prints %q and says %q, expected nothing that a terminal obeys", args[:2], r.out, r.err)
		}
	}
}

// peakVariable names the file to which a process of the program writes its peak resident memory.
// The system's own report about an ended process includes the memory of its parent.
const peakVariable = "PESTI_TEST_PEAK"

// leavePeak writes that file: KiB, without the pages of the executable. How many of those are resident
// depends on the sizes in which the system maps a file.
func leavePeak(path string) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	exe, err := os.Executable()
	if err != nil {
		return
	}
	kib := func(fields string) int {
		n, err := strconv.Atoi(strings.Fields(fields)[0])
		if err != nil {
			panic(err)
		}
		return n
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	peak := kib(rest)
	own := false
	for line := range strings.Lines(string(maps)) {
		name, value, _ := strings.Cut(line, ":")
		switch {
		case name == "Rss" && own:
			peak -= kib(value)
		case strings.Contains(name, "-"): // a line with a range of addresses ends in the file's path
			own = strings.HasSuffix(line, " "+exe+"\n")
		}
	}
	os.WriteFile(path, []byte(strconv.Itoa(peak)), 0o666)
}

// measured runs the program in a process of its own, within its bounds of time and memory.
func measured(t *testing.T, args ...string) result {
	t.Helper()
	peak := filepath.Join(t.TempDir(), "peak")
	t.Setenv(peakVariable, peak)
	p := start(t, args...)
	out, err := io.ReadAll(p.out)
	if err != nil {
		t.Error(err)
	}
	r := result{p.exitCode(), string(out), p.err.String()}
	if took := p.ProcessState.UserTime() + p.ProcessState.SystemTime(); took > time.Second {
		t.Errorf("took %v of the processor, expected a second at most", took)
	}
	if runtime.GOOS == "linux" {
		kib, err := strconv.Atoi(readFile(t, peak))
		if err != nil || kib < 1<<10 || kib > 64<<10 {
			t.Errorf("had %d KiB resident (%v), expected 64 MiB at most", kib, err)
		}
	}
	return r
}

// If another process truncates a model, the verb that reads it ends with an error that names the model and not the
// output.
func TestShrinkingModel(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a shortened mapping does is known for Linux")
	}
	for _, args := range [][]string{
		{"run", "-p", story, "--temp", "0", "--ignore-eos", "--passes", "none"},
		{"convert", "--type", "q6_k", "-o", "-"}, // the model has tensors of that type
		{"convert", "--type", "f32", "-o", "-"},
		{"quantize", "--type", "fp8_e4m3", "-o", "-"},
	} {
		for _, left := range []int64{4096, int64(len(demo.GGUF())) - 1} { // the second size cuts the last page without removing it
			if args[0] == "run" && left > 4096 {
				continue // it may have read that page
			}
			model := demoFile(t, nil)
			p := start(t, slices.Insert(slices.Clone(args), 1, model)...)
			p.read(t, 10)
			if err := os.Truncate(model, left); err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, p.out)
			r := result{code: p.exitCode(), err: p.err.String()}
			if r.fails(t, exitError, "pesti: "+model+": became shorter while it was read"); t.Failed() {
				t.Fatalf("%q, cut to %d bytes: %s", args, left, r.err)
			}
		}
	}
}

// dump also names a model that is truncated after it was opened: here while dump waits for the prompt.
func TestShrinkingModelOfDump(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a shortened mapping does is known for Linux")
	}
	dir := t.TempDir()
	model, fifo, out := demoFile(t, nil), filepath.Join(dir, "prompt"), filepath.Join(dir, "values")
	if err := exec.Command("mkfifo", fifo).Run(); err != nil {
		testenv.Lacks(t, err)
	}
	p := start(t, "dump", model, "-f", fifo, "-o", out)
	prompt, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for the reader
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(model, 4096); err != nil {
		t.Fatal(err)
	}
	io.WriteString(prompt, story)
	prompt.Close()
	io.Copy(io.Discard, p.out)
	result{code: p.exitCode(), err: p.err.String()}.fails(t, exitError, model+": became shorter while it was read")
	if _, err := os.Stat(out); err == nil {
		t.Error("the folder of values exists")
	}
}

// A file with nothing but a header is valid, but is no model.
func TestEmptyModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty.gguf")
	saveFile(t, path, "GGUF\x03\x00\x00\x00"+strings.Repeat("\x00", 16))
	for _, line := range []string{"keys          0\n", "tensors       0 "} {
		if out := ok(t, "inspect", path); !strings.Contains(out, line) {
			t.Errorf("inspect prints %q, expected %q", out, line)
		}
	}
	pesti("compile", path, "-o", path+".plan").fails(t, 1, path, "general.architecture", "no such key")
}

// Vocabulary files without tensors work with tokenize; other verbs report the missing tensors.
func TestVocabularyFiles(t *testing.T) {
	for _, c := range []struct{ name, text, ids, lacks string }{
		{"qwen2", "Hello", "[9707]", "no tensors"},
		{"llama-bpe", "Hello", "[128000, 9906]", "no tensors"},
		{"llama-spm", "Hello", "[1, 15043]", "no tensors"},
		{"gpt-2", "Hello", "[15496]", `architecture "gpt2" is not supported; supported are gemma3, llama`},
		{"falcon", "Hello", "[9856]", `architecture "falcon" is not supported; supported are gemma3, llama`},
	} {
		path := testenv.Model(t, "vocab/ggml-vocab-"+c.name+".gguf")
		if r := (call{stdin: c.text, args: []string{"tokenize", path, "--ids"}}).run(); r.code != 0 || r.out != c.ids+"\n" {
			t.Errorf("%s: tokenize %q: %+v, expected %s", c.name, c.text, r, c.ids)
		}
		for _, args := range [][]string{
			{"run", path, "-p", "Hello"},
			{"compile", path, "-o", filepath.Join(t.TempDir(), "x.plan")},
			{"bench", path},
			{"dot", path},
		} {
			pesti(args...).fails(t, exitError, path, c.lacks)
		}
	}
}
