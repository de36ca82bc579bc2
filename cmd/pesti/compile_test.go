package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/testenv"
	"pesti/exec"
	"pesti/exec/cpu/isa"
	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/lower"
	"pesti/lower/memplan"
)

func TestCompile(t *testing.T) {
	dir := t.TempDir()
	path := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	for _, sub := range []string{"models", "plans", "moved"} {
		if err := os.Mkdir(path(sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	file := path("models", "m.gguf")
	saveFile(t, file, readFile(t, demoFile(t, nil)))

	r := pesti("compile", file, "-o", path("plans", "a.plan"))
	if r.code != 0 || r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "3 programs") {
		t.Errorf("compile: %+v, want a line on standard error alone", r)
	}
	ok(t, "compile", file, "-o", path("plans", "b.plan"))
	text := readFile(t, path("plans", "a.plan"))
	if text != readFile(t, path("plans", "b.plan")) {
		t.Errorf("two compilations wrote different plans")
	}
	if !strings.Contains(text, "../models/m.gguf") || strings.Contains(text, dir) {
		t.Errorf("the plan does not say where its model is from it: %s", strings.Split(text, "\n")[2])
	}
	files, _ := filepath.Glob(path("plans", "*"))
	if len(files) != 2 {
		t.Errorf("compile left %q, want two plans", files)
	}

	// The plan finds its model from any working folder, and both may move together.
	want, _ := runs(t, "demo", "-p", story, "--temp", "0", "-n", "8")
	t.Chdir(path("plans"))
	for _, p := range []string{"a.plan", path("plans", "a.plan")} {
		if got, _ := runs(t, p, "-p", story, "--temp", "0", "-n", "8"); got != want {
			t.Errorf("%s continues %q, want %q", p, got, want)
		}
	}
	saveFile(t, path("moved", "c.plan"), text)
	if got, _ := runs(t, path("moved", "c.plan"), "-p", story, "--temp", "0", "-n", "8"); got != want {
		t.Errorf("a moved plan continues %q, want %q", got, want)
	}
	saveFile(t, path("d.plan"), text)
	pesti("run", path("d.plan"), "-p", story).fails(t, 1, path("d.plan"), "m.gguf", "--model")
	if got, _ := runs(t, path("d.plan"), "--model", file, "-p", story, "--temp", "0", "-n", "8"); got != want {
		t.Errorf("with --model %q, want %q", got, want)
	}

	// The same with relative paths.
	ok(t, "compile", filepath.Join("..", "models", "m.gguf"), "-o", "here.plan")
	if !strings.Contains(readFile(t, "here.plan"), "../models/m.gguf") {
		t.Errorf("a plan in the current folder does not say where its model is from it")
	}
}

func TestCompileOptions(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "x.plan")
	best, err := exec.BestISA("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, has string }{
		{"", "target  cpu " + best + " precision=fast kv=f16"},
		{"", "ubatch=512 sequences=1"},
		{"--precision exact", "precision=exact kv=f32"},
		{"--precision exact --kv f16", "precision=exact kv=f16"},
		{"--kv f32", "precision=fast kv=f32"},
		{"--ctx 100 --ubatch 50 --sequences 3", "ctx=100 ubatch=50 sequences=3"},
		{"--threads 5", "threads<=5"},
		{"-t 7 --target cpu --isa portable --verify", "target  cpu portable precision=fast kv=f16 threads<=7"},
		{"--passes=-fuse_gated_mlp,-cse", `passes  "-fuse_gated_mlp,-cse"`},
		{"--passes none", `passes  "none"`},
		{"--values blk.1.out", "blk.1.out"},
	} {
		ok(t, append(strings.Fields("compile demo -o "+plan), strings.Fields(c.args)...)...)
		if text := readFile(t, plan); !strings.Contains(text, c.has) {
			t.Errorf("compile %s: the plan does not say %q:\n%s", c.args, c.has, text[:min(len(text), 800)])
		}
	}
}

// TestCompileWithPlanner places the demo's buffers with each planner. Only the placement differs,
// and the default has the smallest arena.
func TestCompileWithPlanner(t *testing.T) {
	dir := t.TempDir()
	compiled := func(args ...string) *plan.Plan {
		t.Helper()
		path := filepath.Join(dir, "x.plan")
		ok(t, append([]string{"compile", "demo", "-o", path}, args...)...)
		ok(t, "plan", "verify", path)
		p, err := plan.Parse([]byte(readFile(t, path)))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	best := compiled()
	arenas := map[int64]bool{}
	for _, name := range memplan.Planners() {
		p := compiled("--planner", name)
		arenas[p.Memory.Arena] = true
		if p.Memory.Arena < best.Memory.Arena || p.Memory.ArenaLowerBound != best.Memory.ArenaLowerBound {
			t.Errorf("--planner %s: arena %d of bound %d, and %d of %d by default", name, p.Memory.Arena, p.Memory.ArenaLowerBound, best.Memory.Arena, best.Memory.ArenaLowerBound)
		}
		p.Memory = best.Memory
		for i := range p.Programs {
			for k := range p.Programs[i].Buffers {
				p.Programs[i].Buffers[k].Offset = best.Programs[i].Buffers[k].Offset
			}
		}
		if !bytes.Equal(plan.Print(p), plan.Print(best)) {
			t.Errorf("--planner %s changes more than where buffers lie", name)
		}
	}
	if len(arenas) < 2 {
		t.Errorf("all planners need arenas of %v", arenas)
	}
	pesti("compile", "demo", "-o", filepath.Join(dir, "y.plan"), "--planner", "best").fails(t, exitUsage, "--planner", "expected one of size-best-fit, ")
	if got := ok(t, "__completeNoDesc", "compile", "--planner", "s"); !strings.Contains(got, "squeaky-wheel\n") {
		t.Errorf("completes to %q", got)
	}
}

func TestCompileDumpsAndExplains(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	plan := filepath.Join(t.TempDir(), "x.plan")
	// The number of programs and the names of kernels depend on the instruction set.
	r := pesti("compile", "demo", "--isa", "portable", "-o", plan, "--dump", dir, "--explain")
	if r.code != 0 || r.out != "" || !strings.Contains(r.err, "fuse_gated_mlp") {
		t.Errorf("--explain: %+v", r)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*.txt"))
	if all, _ := filepath.Glob(filepath.Join(dir, "*")); len(all) != len(names)+1 {
		t.Errorf("--dump wrote %q, want texts and a page", all)
	}
	page := readFile(t, filepath.Join(dir, "index.html"))
	if n := strings.Count(page, "<section "); n != len(names)+3 {
		t.Errorf("the page has %d columns, want one for each of %d texts and 3 programs", n, len(names))
	}
	for _, anchor := range []string{`<p class="count">37 steps</p>`, `id="0%blk.0.q_rope"`, `id="5%blk.0.q"`, `id="11%blk.0.ffn_out.x"`, `gemv.q4_k.q8x2 <a id="11@blk.0.ffn_gate.weight">`} {
		if !strings.Contains(page, anchor) {
			t.Errorf("the page has no %s", anchor)
		}
	}
	// Only files of an earlier dump are removed.
	for _, name := range []string{"99-decode.fuse_qkv.txt", "07-graph.txt", "notes.txt", "01-notes.txt", "1-cse.txt", "01-cse.txt.bak"} {
		saveFile(t, filepath.Join(dir, name), "")
	}
	pesti("compile", "demo", "-o", plan, "--dump", dir, "--passes", "bogus").fails(t, 2, "bogus")
	if readFile(t, names[0]) == "" {
		t.Error("a compilation that failed removed the dump before it")
	}
	ok(t, "compile", "demo", "--isa", "portable", "-o", plan, "--dump", dir)
	if readFile(t, filepath.Join(dir, "index.html")) != page {
		t.Error("two compilations wrote different pages")
	}
	want := append(slices.Clone(names), filepath.Join(dir, "notes.txt"), filepath.Join(dir, "01-notes.txt"), filepath.Join(dir, "1-cse.txt"))
	slices.Sort(want)
	if got, _ := filepath.Glob(filepath.Join(dir, "*.txt")); !slices.Equal(got, want) {
		t.Errorf("a second dump leaves %q, want %q", got, want)
	}
	var last string
	for i, n := range names {
		base := filepath.Base(n)
		if !strings.HasPrefix(base, []string{"00-graph.txt", "01-", "02-", "03-"}[min(i, 3)]) && i < 4 || !strings.HasSuffix(base, ".txt") {
			t.Errorf("file %d is %s, want a number, the pass and .txt", i, base)
		}
		text := readFile(t, n)
		if !strings.HasPrefix(text, "graph qwen2") || text == last {
			t.Errorf("%s is no graph, or the same as the one before", base)
		}
		last = text
	}
	if len(names) < 5 {
		t.Errorf("--dump wrote %q", names)
	}
	// Every node has its line in the page, unfused ones too; every step of the plan has results.
	ok(t, "compile", "demo", "--isa", "portable", "-o", plan, "--dump", dir, "--passes", "none")
	if page := readFile(t, filepath.Join(dir, "index.html")); !strings.Contains(page, "ref.kv_write") || strings.Contains(page, "<span>   = ") {
		t.Error("without passes a step has no results, or there is no unfused one")
	}
	saveFile(t, filepath.Join(dir, "file"), "")
	pesti("compile", "demo", "-o", plan, "--dump", filepath.Join(dir, "file")).fails(t, 1, filepath.Join(dir, "file"))
}

// TestExplain compares the notes of passes with a golden file, for all passes and with some
// switched off. It uses one instruction set, so that the notes are the same on all machines.
func TestExplain(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "x.plan")
	var page strings.Builder
	for _, args := range []string{"", "--precision exact", "--passes=-fuse_qkv,-sink_rows", "--passes none", "--values blk.1.ffn_norm"} {
		r := pesti(append([]string{"compile", "demo", "-t", "2", "--isa", "portable", "-o", plan, "--explain"}, strings.Fields(args)...)...)
		if r.code != 0 || r.out != "" {
			t.Errorf("%s: %+v", args, r)
		}
		text, last, _ := strings.Cut(r.err, plan)
		if strings.Count(last, "\n") != 1 {
			t.Errorf("%s: the plan is not told of last: %q", args, last)
		}
		for _, p := range lower.Passes() { // every pass has a note
			if p.Name != "fuse_prologue" && !strings.Contains("\n"+text, "\n"+p.Name+" ") { // fuse_prologue belongs to another target
				t.Errorf("%s: nothing on %s:\n%s", args, p.Name, text)
			}
		}
		page.WriteString("# " + args + "\n" + text)
	}
	golden(t, "testdata/explain.golden", page.String())
	r := pesti("compile", "demo", "--target", "cuda", "-o", plan, "--explain")
	if told := strings.Contains(r.err, "\ninsert_quantize "); told || !strings.Contains(r.err, "\nfuse_prologue   blk.N.q ") {
		t.Errorf("of target cuda, expected its passes alone:\n%s", r.err)
	}
}

// TestCompileSaysFallbacks checks that compile prints the number of fallbacks with ops and reasons
// on standard error, and nothing if there are none.
func TestCompileSaysFallbacks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plan")
	r := pesti("compile", "demo", "--target", "cuda", "--passes", "-fuse_attention", "-o", path)
	for _, want := range []string{
		"84 steps are fallbacks to reference kernels, which run on the host:",
		"  84 for attn_scores, attn_values, kv_write, rope, softmax: target cuda has no kernel for it",
	} {
		if r.code != 0 || !strings.Contains(r.err, want) {
			t.Errorf("expected %q: %+v", want, r)
		}
	}
	if r := pesti("compile", "demo", "--target", "cuda", "-o", path); r.code != 0 || strings.Contains(r.err, "fallback") {
		t.Errorf("expected no word of fallbacks: %+v", r)
	}
}

func TestCompileWritesWholeFiles(t *testing.T) {
	dir := t.TempDir()
	plan := filepath.Join(dir, "x.plan")
	saveFile(t, plan, "old")
	cut := filepath.Join(dir, "cut.gguf")
	whole := readFile(t, demoFile(t, nil))
	saveFile(t, cut, whole[:len(whole)/2])
	pesti("compile", cut, "-o", plan).fails(t, 1, cut)
	if got := readFile(t, plan); got != "old" {
		t.Errorf("a failed compilation left %.20q, want the old file", got)
	}
	link := filepath.Join(dir, "link.plan")
	if err := os.Symlink(plan, link); err != nil {
		testenv.Lacks(t, err)
	}
	ok(t, "compile", "demo", "-o", link)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info.Mode(), err)
	}
	if got := readFile(t, plan); !strings.HasPrefix(got, "pesti-plan ") {
		t.Errorf("the file behind the link is %.20q, want a plan", got)
	}
	pesti("compile", "demo", "-o", dir).fails(t, 1, dir, "directory")
	none := filepath.Join(dir, "none", "x.plan")
	pesti("compile", "demo", "-o", none).fails(t, 1, none+": cannot be written")
}

func TestCompileErrors(t *testing.T) {
	dir := t.TempDir()
	plan := filepath.Join(dir, "x.plan")
	page := filepath.Join(dir, "page.gguf")
	saveFile(t, page, "<!DOCTYPE html><html><body>Not found</body></html>")
	vocabulary := rewrittenDemo(t, false, nil)
	empty := filepath.Join(dir, "empty.gguf")
	saveFile(t, empty, "GGUF\x03\x00\x00\x00"+strings.Repeat("\x00", 16))
	for file, words := range map[string][]string{
		filepath.Join(dir, "none.gguf"): {"none.gguf"},
		dir:                             {dir},
		page:                            {page},
		empty:                           {empty, "general.architecture"},
		vocabulary:                      {vocabulary, "no tensors"},
	} {
		pesti("compile", file, "-o", plan).fails(t, 1, words...)
		pesti("run", file, "-p", "a").fails(t, 1, words...)
		pesti("dot", file).fails(t, 1, words...)
		pesti("bench", file).fails(t, 1, words...)
	}
	if _, err := os.Stat(plan); err == nil {
		t.Errorf("a failed compilation wrote a plan")
	}
}

func TestISA(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "x.plan")
	args := []string{"compile", "demo", "-o", plan}
	with := func(most string, args ...string) result {
		return call{args: args, env: map[string]string{isaVariable: most}}.run()
	}
	with("sse2", args...).fails(t, 1, isaVariable, `"sse2"`, "portable")
	for _, s := range isa.Detect() {
		if r := with(s.Name, args...); r.code != 0 {
			t.Errorf("%s=%s: %s", isaVariable, s.Name, r.err)
		}
		if slices.Contains(exec.BuiltISAs(), s.Name) && s.Has {
			if r := pesti(append(args, "--isa", s.Name)...); r.code != 0 {
				t.Errorf("--isa %s: %s", s.Name, r.err)
			}
		} else {
			pesti(append(args, "--isa", s.Name)...).fails(t, 1, "--isa", s.Name)
		}
	}
	with("portable", args...)
	if text := readFile(t, plan); !strings.Contains(text, "cpu portable ") {
		t.Errorf("%s=portable: the plan is not portable", isaVariable)
	}
	for _, c := range []struct {
		needed, most string
		ok           bool
	}{
		{"avx2", "", true},
		{"avx2", "amx", true},
		{"avx2", "avx2", true},
		{"avx512vnni", "avx2", false},
		{"portable", "portable", true},
		{"amx", "portable", false},
		{"portable", "sse2", false},
		{"sse2", "amx", false},
	} {
		if err := allowedISA(c.needed, c.most); (err == nil) != c.ok {
			t.Errorf("allowedISA(%q, %q) = %v", c.needed, c.most, err)
		}
	}
	beyond := filepath.Join(t.TempDir(), "beyond.plan")
	if best, err := exec.BestISA(""); err != nil || best == "portable" {
		t.Skipf("no plan is beyond portable here: %s, %v", best, err)
	}
	ok(t, "compile", demoName, "-o", beyond)
	with("portable", "run", beyond, "-p", "a").fails(t, 1, "beyond.plan", "PESTI_ISA allows no more than portable", "pesti compile MODEL -o PLAN")
}

// A model with a damaged vocabulary compiles, with a warning about verbs that will refuse it.
func TestCompileSpoiltVocabulary(t *testing.T) {
	file := rewrittenDemo(t, true, func(w *gguf.Writer) { w.SetUint32("tokenizer.ggml.eos_token_id", 1536) })
	r := pesti("compile", file, "-o", filepath.Join(t.TempDir(), "x.plan"))
	if r.code != 0 || !strings.Contains(r.err, "tokenizer.ggml.eos_token_id") || !strings.Contains(r.err, "run and tokenize will refuse") {
		t.Errorf("compile: exit code %d, %q", r.code, r.err)
	}
	pesti("run", file, "-p", "a").fails(t, 1, file, "tokenizer.ggml.eos_token_id")
}

// TestCollectLess checks that compiling collects garbage less often, and leaves a percentage alone that the user
// has set.
func TestCollectLess(t *testing.T) {
	for _, c := range []struct {
		env         string
		set, during int
	}{{"", 100, 400}, {"100", 100, 100}, {"", 50, 50}, {"", 800, 800}, {"", -1, -1}} {
		t.Setenv("GOGC", c.env)
		old := debug.SetGCPercent(c.set)
		restore := collectLess()
		during := debug.SetGCPercent(c.during)
		restore()
		if after := debug.SetGCPercent(old); during != c.during || after != c.set {
			t.Errorf("GOGC %q, percentage %d: %d while it compiles, expected %d, and %d afterwards", c.env, c.set, during, c.during, after)
		}
	}
}
