package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pesti/conformance/compare"
	planfile "pesti/exec/plan"
)

// compared returns the output of compare --json.
func compared(t *testing.T, args ...string) *compare.Comparison {
	t.Helper()
	return decoded[compare.Comparison](t, append([]string{"compare", "--json"}, args...)...)
}

// A simple comparison of two dumps, written independently of compare.
func plainly(t *testing.T, dirA, dirB string) *compare.Comparison {
	t.Helper()
	read := func(dir, name string) (rows [][]float64) {
		d := readNpy(t, filepath.Join(dir, name))
		for row := range slices.Chunk(d.floats, d.shape[1]) {
			var r []float64
			for _, x := range row {
				r = append(r, float64(x))
			}
			rows = append(rows, r)
		}
		return rows
	}
	softmax := func(x []float64) []float64 {
		var p []float64
		sum := 0.0
		for _, v := range x {
			sum += math.Exp(v)
		}
		for _, v := range x {
			p = append(p, math.Exp(v)/sum)
		}
		return p
	}
	c := &compare.Comparison{}
	a, b := read(dirA, "logits.npy"), read(dirB, "logits.npy")
	c.Tokens = len(a)
	for t := range a {
		p, q, kl := softmax(a[t]), softmax(b[t]), 0.0
		for i := range p {
			kl += p[i] * math.Log(p[i]/q[i])
		}
		c.MeanKL += compare.Number(kl) / compare.Number(len(a))
		if compare.Number(kl) > c.MaxKL {
			c.MaxKL, c.Position = compare.Number(kl), t
		}
		if slices.Index(p, slices.Max(p)) == slices.Index(q, slices.Max(q)) {
			c.SameTop++
		}
	}
	c.Top1 = float64(c.SameTop) / float64(len(a))
	for n := range 4 {
		a, b := read(dirA, fmt.Sprintf("layer_%02d.npy", n)), read(dirB, fmt.Sprintf("layer_%02d.npy", n))
		l := compare.LayerDeviation{Layer: n}
		for t := range a {
			var sizes []float64
			for _, x := range a[t] {
				sizes = append(sizes, math.Abs(x))
			}
			slices.Sort(sizes)
			median := (sizes[127] + sizes[128]) / 2 // of 256
			for i, x := range a[t] {
				if d := compare.Number(math.Abs(b[t][i]-x) / (math.Abs(x) + median)); d > l.D {
					l = compare.LayerDeviation{Layer: n, D: d, Position: t, Dim: i}
				}
			}
		}
		c.Layers = append(c.Layers, l)
	}
	return c
}

func near(a, b compare.Number) bool { return math.Abs(float64(a-b)) <= 1e-6*math.Abs(float64(b))+1e-15 }

// Two plans, two sets of options, a plan and a folder, two folders: the numbers equal those of a
// direct comparison of dumps.
func TestCompare(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	ok(t, "dump", "demo", "-p", fox, "-o", a)
	ok(t, "dump", "demo", "-p", fox, "-o", b, "--precision", "fast")
	want := plainly(t, a, b)
	if want.MeanKL == 0 || want.Layers[3].D == 0 {
		t.Fatalf("the dumps do not differ: %+v", want)
	}
	exact, _ := demoPlan(t, "--precision", "exact")
	fast, _ := demoPlan(t, "--precision", "fast")
	for _, args := range [][]string{
		{a, b},
		{exact, fast, "-p", fox},
		{"demo", "demo", "--but", "precision=fast", "-p", fox},
		{"demo", "demo", "--but", "precision=fast", "-p", fox, "-t", "1", "--ubatch", "3"},
		{a, "demo", "--precision", "fast"},
		{a, fast},
		{exact, b, "-p", fox},
	} {
		got := compared(t, args...)
		if got.A.Name != args[0] || got.B.Name != args[1] || got.Tokens != want.Tokens || got.Position != want.Position || got.SameTop != want.SameTop ||
			got.Top1 != want.Top1 || !near(got.MeanKL, want.MeanKL) || !near(got.MaxKL, want.MaxKL) || len(got.Layers) != 4 {
			t.Errorf("compare %q: %+v, want %+v", args, got, want)
			continue
		}
		for n, l := range got.Layers {
			w := want.Layers[n]
			if l.Layer != w.Layer || l.Position != w.Position || l.Dim != w.Dim || !near(l.D, w.D) {
				t.Errorf("compare %q: %+v, want %+v", args, l, w)
			}
		}
	}

	// The text output is the same each time, for any number of threads.
	page := ok(t, "compare", a, b)
	var layers strings.Builder
	for _, l := range want.Layers {
		fmt.Fprintf(&layers, "%02d     %.2e  %-8d  %-3d  -\n", l.Layer, float64(l.D), l.Position, l.Dim)
	}
	for _, words := range []string{
		fmt.Sprintf("\n-        %.2e  %.2e  %-8d  at %d of %d positions\n", float64(want.MeanKL), float64(want.MaxKL), want.Position, want.SameTop, want.Tokens), layers.String(),
	} {
		if !strings.Contains(page, words) {
			t.Errorf("compare prints:\n%s\nwant it to hold %q", page, words)
		}
	}
	// For plans, the output has each program.
	page = ok(t, "compare", "demo", "demo", "--but", "precision=fast", "-p", fox)
	if !strings.HasPrefix(page, "A demo: exact, KV cache in f32\nB demo (precision=fast): fast, KV cache in f16\n\nprogram ") || !strings.Contains(page, "\ndecode ") || !strings.Contains(page, "\nsmall ") || !strings.HasSuffix(page, "\nnot run: prefill, which takes 32 tokens or more at a time\n") {
		t.Errorf("compare prints:\n%s", page)
	}
	for _, threads := range []string{"1", "2"} {
		if out := ok(t, "compare", "demo", "demo", "--but", "precision=fast", "-p", fox, "-t", threads); out != page {
			t.Errorf("with %s threads compare prints:\n%s\nwant:\n%s", threads, out, page)
		}
	}
}

// Two operands of the same name are distinguished, in JSON too, by the options of B and by the
// properties of their plans.
func TestCompareOperands(t *testing.T) {
	dir := t.TempDir()
	ok(t, "dump", "demo", "--ids", "1,2,3", "-o", dir)
	c := compared(t, "demo", "demo", "--ids", "1,2,3", "--passes", "none", "--but", "kv=f16", "--but", "passes=-cse")
	a, b := compare.Description{Name: "demo", Precision: "exact", KV: "f32", Passes: "none"}, compare.Description{Name: "demo", But: []string{"kv=f16", "passes=-cse"}, Precision: "exact", KV: "f16", Passes: "-cse"}
	if !reflect.DeepEqual(*c.A, a) || !reflect.DeepEqual(*c.B, b) {
		t.Errorf("the operands are %+v and %+v, want %+v and %+v", *c.A, *c.B, a, b)
	}
	if c := compared(t, "demo", dir); !reflect.DeepEqual(*c.B, compare.Description{Name: dir}) {
		t.Errorf("a folder is %+v", *c.B)
	}
	b.Letter = "B"
	if got, want := operandLine(&b), "B demo (kv=f16, passes=-cse): exact, KV cache in f16, passes -cse\n"; got != want {
		t.Errorf("B is %q, want %q", got, want)
	}
	if b := bisected(t, "demo", "demo", "--but", "kv=f16"); b.B.KV != "f16" || b.A.KV != "f32" || b.B.Name != "demo" {
		t.Errorf("--bisect: the operands are %+v and %+v", b.A, b.B)
	}
}

// The Python program that compares dumps finds the same d.
func TestCompareAsPython(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	ok(t, "dump", "demo", "-p", fox, "-o", a)
	ok(t, "dump", "demo", "-p", fox, "-o", b, "--passes", "none")
	c := compared(t, a, b)
	page := python(t, "../../conformance/oracle/compare_all_layers.py", b, a)
	for _, l := range c.Layers {
		if want := fmt.Sprintf("layer %02d d %.3e at position %d dim %d ", l.Layer, float64(l.D), l.Position, l.Dim); !strings.Contains(page, want) {
			t.Errorf("Python finds:\n%s\nwant it to hold %q", page, want)
		}
	}
	if c.Layers[0].D == 0 {
		t.Error("nothing differs")
	}
}

// Equal operands have distance 0, and only they meet a bound of 0.
func TestCompareBounds(t *testing.T) {
	plan, _ := demoPlan(t, "--precision", "exact")
	dir := t.TempDir()
	ok(t, "dump", "demo", "-p", fox, "-o", dir)
	for _, args := range [][]string{{"demo", plan}, {plan, "demo", "-t", "1"}, {"demo", dir}, {dir, dir}, {"demo", "demo", "--but", "threads=1", "--but", "ubatch=5"}} {
		if c := compared(t, append(args, "-p", fox, "--max-kl", "0", "--max-d", "0")...); c.MaxKL != 0 || c.Top1 != 1 {
			t.Errorf("compare %q: %+v, want no difference", args, c)
		}
	}
	fast := []string{"compare", "demo", "demo", "--but", "precision=fast", "--but", "activations=q8x2", "-p", fox}
	for _, c := range []struct {
		args  []string
		words string // of the error, "" for none
	}{
		{[]string{"--max-kl", "1e-4", "--max-d", "0.1"}, ""},
		{[]string{"--max-kl", "1e-9"}, "mean KL divergence from A demo is "},
		{[]string{"--max-d", "1e-4"}, " in layer "},
		{[]string{"--max-kl", "1e-9", "--json"}, "expected at most 1e-09"},
	} {
		r := pesti(append(fast[:len(fast):len(fast)], c.args...)...)
		if r.out == "" {
			t.Errorf("compare %q prints nothing", c.args)
		}
		if c.words == "" {
			if r.code != 0 || r.err != "" {
				t.Errorf("compare %q: exit code %d, %s", c.args, r.code, r.err)
			}
			continue
		}
		r.out = ""
		r.fails(t, 1, "pesti: B demo (precision=fast, activations=q8x2): ", c.words)
	}

	// NaN counts as an infinite difference.
	logits := readNpy(t, filepath.Join(dir, "logits.npy"))
	x := logits.floats
	x[len(x)-1] = float32(math.NaN())
	saveNpy(t, filepath.Join(dir, "logits.npy"), "<f4", logits.shape, floatBytes(x))
	if c := compared(t, "demo", dir); !math.IsInf(float64(c.MeanKL), 1) || c.Position != c.Tokens-1 {
		t.Errorf("with NaN: %+v, want an infinite divergence at the last position", c)
	}
	if out := ok(t, "compare", "demo", dir); !strings.Contains(out, "\ndecode   +Inf ") {
		t.Errorf("with NaN compare prints:\n%s", out)
	}
	r := pesti("compare", "demo", dir, "--max-kl", "1e9")
	r.out = ""
	r.fails(t, 1, "+Inf")
}

func TestCompareRefuses(t *testing.T) {
	plan, _ := demoPlan(t, "--ctx", "64")
	good := t.TempDir()
	ok(t, "dump", "demo", "--ids", "1,2,3", "-o", good)
	// Copies of the folder, each damaged in one way.
	with := func(edit func(path func(string) string)) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		edit(func(name string) string { return filepath.Join(dir, name) })
		return dir
	}
	remove := func(names ...string) string {
		return with(func(path func(string) string) {
			for _, name := range names {
				if err := os.Remove(path(name)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	put := func(name, kind string, shape ...int) string {
		n := 4
		for _, d := range shape {
			n *= d
		}
		return with(func(path func(string) string) { saveNpy(t, path(name), kind, shape, make([]byte, n)) })
	}
	for _, c := range []struct {
		args  []string
		code  int
		words string
	}{
		{[]string{"demo"}, 2, "1 argument"},
		{[]string{"demo", "demo"}, 2, "no tokens"},
		{[]string{"demo", "demo", "--ids", ","}, 2, "--ids is empty"},
		{[]string{"demo", "demo", "--ids", "x"}, 2, `"x"`},
		{[]string{"demo", "demo", "--ids", "1", "-p", "a"}, 2, "one of -p TEXT, -f FILE and --ids LIST"},
		{[]string{"demo", "demo", "--ids", "1", "--max-kl", "-1"}, 2, "0 or more"},
		{[]string{"demo", "demo", "--ids", "1", "--max-d", "NaN"}, 2, "0 or more"},
		{[]string{"demo", "demo", "--ids", "1", "--max-d", "1x"}, 2, "0 or more"},
		{[]string{"demo", "demo", "--ids", "1", "--max-kl", "1 . junk"}, 2, "0 or more"},
		{[]string{"demo", "demo", "--ids", "1", "--max-kl", "inf"}, 2, "0 or more"},
		{[]string{"demo", "demo", "--ids", "1", "--max-d", "1e999"}, 2, "0 or more"},
		{[]string{"demo", "demo", "--ids", "1", "--max-d", "0x1p-3"}, 2, "0 or more"},
		{[]string{"demo", "demo", "--ids", "1", "--max-d", "1_0"}, 2, "0 or more"},
		{[]string{"demo", "demo", "--ids", "1", "--max-d", ""}, 2, "0 or more"},
		{[]string{"demo", "demo", "--ids", "1", "--but", "precision"}, 2, "OPTION=VALUE"},
		{[]string{"demo", "demo", "--ids", "1", "--but", "prompt=x"}, 2, "OPTION=VALUE"},
		{[]string{"demo", "demo", "--ids", "1", "--but", "precision=quick"}, 2, "exact, fast"},
		{[]string{"demo", "demo", "--ids", "1", "--but", "passes=-nope"}, 2, "nope"},
		{[]string{"demo", "demo", "--ids", "1", "--model", "demo"}, 2, "neither demo nor demo"},
		{[]string{"demo", plan, "--ids", "1", "--but", "precision=fast"}, 2, "compiled already"},
		{[]string{plan, "demo", "--ids", "1", "--precision", "fast"}, 2, "compiled already"},
		{[]string{"demo", good, "--but", "precision=fast"}, 2, good + " is a folder"},
		{[]string{"demo", good, "--bisect"}, 2, good + " is a folder"},
		{[]string{"demo", "demo", "--ids", "1", "--bisect", "--max-kl", "1"}, 2, "expected --max-d"},
		{[]string{"demo", "none", "--ids", "1"}, 1, "none: cannot be opened"},
		{[]string{"demo", "demo", "--ids", "99999"}, 1, "demo: token id 99999"},
		{[]string{"demo", plan, "-p", strings.Repeat(fox, 9)}, 1, "expected at most 64"},
		{[]string{"demo", "demo", "--but", "ctx=8", "-p", fox}, 1, "B demo (ctx=8): the prompt has "},
		{[]string{"demo", good, "--ids", "1,2"}, 1, good + ": its token ids are [1 2 3], expected [1 2], the ids of --ids"},
		{[]string{"demo", good, "-p", fox}, 1, "the ids of A demo"},
		{[]string{"demo", remove("tokens.npy")}, 1, "tokens.npy: cannot be opened"},
		{[]string{"demo", remove("logits.npy")}, 1, "logits.npy: cannot be opened"},
		{[]string{"demo", remove("layer_03.npy")}, 1, ": 3 layers, expected the 4 of A demo"},
		{[]string{"demo", put("logits.npy", "<f4", 3, 7)}, 1, ": a vocabulary of 7 tokens, expected the 1536 of A demo"},
		{[]string{"demo", put("logits.npy", "<f4", 2, 1536)}, 1, "logits.npy: shape [2 1536], expected a row for each of the 3 tokens"},
		{[]string{"demo", put("logits.npy", "<i4", 3, 1536)}, 1, "logits.npy: elements of type"},
		{[]string{"demo", put("tokens.npy", "<f4", 3)}, 1, "tokens.npy: elements of type"},
		{[]string{"demo", put("tokens.npy", "<i8", 3)}, 1, "tokens.npy: shape (3,), expected at least one and at most the 1 elements"},
		{[]string{"demo", put("layer_01.npy", "<f4", 3, 128)}, 1, ": layer 1 is 128 wide, expected 256 as in A demo"},
		{[]string{"demo", remove("layer_00.npy")}, 1, "layer_00.npy: is missing, and layer_03.npy is present"},
		{[]string{remove("layer_02.npy"), "demo"}, 1, "layer_02.npy: is missing, and layer_03.npy is present"},
		{[]string{"demo", put("layer_3.npy", "<f4", 3, 256)}, 1, "layer_04.npy: is missing, and layer_3.npy is present"},
		{[]string{"demo", remove("layer_00.npy", "layer_01.npy", "layer_02.npy", "layer_03.npy"), "--max-d", "1"}, 1, "no layers to compare"},
	} {
		r := pesti(append([]string{"compare"}, c.args...)...)
		if c.words == "no layers to compare" {
			r.out = "" // the logits were printed
		}
		t.Run(strings.Join(c.args, " "), func(t *testing.T) { r.fails(t, c.code, c.words) })
	}
}

// bisected returns the output of compare --bisect --json.
func bisected(t *testing.T, args ...string) *compare.Bisection {
	t.Helper()
	return decoded[compare.Bisection](t, append([]string{"compare", "--bisect", "--json", "-p", fox + fox}, args...)...)
}

// A fault in one step of one program is found at that step, in either direction.
func TestBisect(t *testing.T) {
	texts := map[string]string{}
	paths := map[string]string{}
	for name, args := range map[string][]string{
		"exact": {"--precision", "exact"}, "fast": {"--precision", "fast"}, "none": {"--precision", "exact", "--passes", "none"},
	} {
		paths[name], texts[name] = demoPlan(t, args...)
	}
	for _, c := range []struct {
		plan, program, value string
		old, new             string // a pattern in the step's line, and its replacement
		position             int    // of the first element above the bound, −1 for any
	}{
		{"exact", "decode", "embd", `scale=1.0`, "scale=1.01", 0},
		{"exact", "decode", "blk.2.attn", `base=10000.0`, "base=30000.0", 1}, // RoPE does not rotate position 0
		{"exact", "small", "blk.1.ffn_norm", `eps=\S+`, "eps=0.5}", -1},
		{"exact", "prefill", "blk.3.ffn_gated.rows", `act="silu"`, `act="gelu_tanh"`, 30}, // of 38, the last 8 of which are wanted
		{"fast", "prefill", "blk.1.attn", `scale=[0-9.]+`, "scale=0.126", -1},
		{"fast", "small", "blk.0.q.x", `eps=\S+`, "eps=0.5}", -1},
		{"fast", "decode", "blk.2.ffn_out.x", `act="silu"`, `act="gelu_tanh"`, -1},
		{"none", "decode", "blk.1.scores", `scale=[0-9.]+`, "scale=0.126", -1},
		{"none", "small", "blk.3.q_rope", `layout="halves"`, `layout="pairs"`, -1},
		{"none", "prefill", "output_norm", `eps=\S+`, "eps=0.5}", -1},
	} {
		t.Run(c.plan+"/"+c.program+"/"+c.value, func(t *testing.T) {
			text := texts[c.plan]
			begin := strings.Index(text, "\nprogram "+c.program+" ")
			line := regexp.MustCompile(`(?m)^    step (\d+)\s+` + regexp.QuoteMeta(c.value) + `\s.*$`).FindStringSubmatchIndex(text[begin:])
			if begin < 0 || line == nil {
				t.Fatal("the plan has no such step")
			}
			at, end := begin+line[0], begin+line[1]
			step, _ := strconv.Atoi(text[begin+line[2] : begin+line[3]])
			waves := regexp.MustCompile(`(?m)^  wave (\d+)$`).FindAllStringSubmatch(text[begin:at], -1)
			wave, _ := strconv.Atoi(waves[len(waves)-1][1])
			edited := regexp.MustCompile(c.old).ReplaceAllString(text[at:end], c.new)
			if edited == text[at:end] {
				t.Fatalf("%q is not in %q", c.old, edited)
			}
			faulty := filepath.Join(t.TempDir(), "faulty.plan")
			saveFile(t, faulty, string(planfile.Seal([]byte(text[:at]+edited+text[end:]))))

			for i, args := range [][]string{{paths[c.plan], faulty}, {faulty, paths[c.plan], "--max-d", "1e-4"}} {
				r := pesti(append([]string{"compare", "--bisect", "--json", "-t", "1", "-p", fox + fox}, args...)...)
				if r.code != i { // a difference is an error only with a bound
					t.Errorf("compare %q: exit code %d: %s", args, r.code, r.err)
				}
				var b bisection
				if err := json.Unmarshal([]byte(r.out), &b); err != nil {
					t.Fatal(err)
				}
				d := b.First
				if d == nil || d.Value != c.value {
					t.Fatalf("compare %q: %+v", args, d)
				}
				for _, s := range d.Steps {
					if s.Program != c.program || s.Step != step || s.Wave != wave || !strings.Contains(edited, " "+s.Kernel+"[") {
						t.Errorf("compare %q: %+v, want step %d of wave %d in program %s:\n%s", args, s, step, wave, c.program, edited)
					}
				}
				if c.position >= 0 && d.Element.Position != c.position {
					t.Errorf("compare %q: %+v, want it at position %d", args, d.Element, c.position)
				}
				if v := d.Element.Values; !(float64(d.D) > b.MaxD) || v[0] == v[1] || d.Element.Position > d.Position && d.Element.Dim > d.Dim {
					t.Errorf("compare %q: %+v", args, d)
				}
			}
		})
	}
}

// The text output agrees with JSON.
func TestBisectPage(t *testing.T) {
	path, text := demoPlan(t)
	faulty := filepath.Join(t.TempDir(), "faulty.plan")
	saveFile(t, faulty, string(planfile.Seal([]byte(strings.Replace(text, `act="silu"`, `act="gelu_erf"`, 1)))))
	d := bisected(t, path, faulty).First
	want := fmt.Sprintf("%s differs: d %.2e at position %d, dim %d\n", d.Value, float64(d.D), d.Position, d.Dim)
	want = "A " + path + ": fast, KV cache in f16\nB " + faulty + ": fast, KV cache in f16\n\n" + want
	for i, letter := range []string{"A", "B"} {
		want += fmt.Sprintf("  %s: program decode, wave %d, step %d, gated_mlp\n", letter, d.Steps[i].Wave, d.Steps[i].Step)
	}
	want += fmt.Sprintf("  first element above 0: position %d, dim %d: ", d.Element.Position, d.Element.Dim)
	if page := ok(t, "compare", "--bisect", path, faulty, "-p", fox+fox); !strings.HasPrefix(page, want) || strings.Count(page, "\n") != 7 {
		t.Errorf("compare --bisect prints:\n%s\nwant:\n%s", page, want)
	}
}

// A plan does not differ from itself, nor plans for one and for two threads. Plans of different
// passes, whose last block has other rows, differ only by rounding.
func TestBisectEqual(t *testing.T) {
	exact, _ := demoPlan(t, "--precision", "exact")
	all := bisected(t, exact, exact)
	if all.First != nil || !slices.Equal(all.Programs, []string{"decode", "small", "prefill"}) || len(all.Skipped) != 0 {
		t.Errorf("%+v, want no difference in all programs", all)
	}
	for _, args := range [][]string{
		{"demo", "demo", "--but", "threads=1", "--max-d", "0"},
		{"demo", "demo", "--precision", "fast", "--but", "threads=1"},
		{"demo", exact, "-t", "1", "--max-d", "0"},
		{"demo", "demo", "-t", "1", "--but", "ctx=128", "--max-d", "0"},
		{"demo", "demo", "-t", "1", "--but", "passes=none"},
		{"demo", "demo", "-t", "1", "--passes", "none", "--but", "passes=-sink_rows"},
	} {
		b := bisected(t, args...)
		if b.First != nil || len(b.Programs) != 3 || b.Values < all.Values/3 {
			t.Errorf("bisect %q: %+v, want no difference", args, b)
		}
	}
	page := ok(t, "compare", "--bisect", exact, exact, "--ids", "1,2,3")
	if !strings.Contains(page, "\n\nno step differs by more than 0: ") || !strings.HasSuffix(page, " in decode, small\nnot run: prefill, which takes 32 tokens or more at a time\n") {
		t.Errorf("compare --bisect prints:\n%s", page)
	}

	// In fast the first products differ from those in exact, and the bound decides.
	if b := bisected(t, "demo", "demo", "--but", "precision=fast"); b.First == nil || b.First.Layer != 0 {
		t.Errorf("fast against exact: %+v, want the first layer", b.First)
	}
	if b := bisected(t, "demo", "demo", "--but", "precision=fast", "--max-d", "0.5"); b.First != nil {
		t.Errorf("fast against exact: %+v, want nothing above 0.5", b.First)
	}
}

// Every verb detects a fault in a single program, whichever plan has the program, although compiled
// plans return only 8 rows of logits at a time.
func TestEveryProgram(t *testing.T) {
	plan, text := demoPlan(t, "--precision", "exact", "--ctx", "128")
	ids := "--ids=" + strings.Trim(strings.Repeat("7,300,41,9,", 10), ",") // 40
	same := compared(t, plan, plan, ids)
	if len(same.Programs) != 3 || len(same.Skipped) != 0 || same.MaxKL != 0 || same.SameTop != 40 || len(same.Layers) != 4 {
		t.Fatalf("a plan and itself: %+v", same)
	}
	for i, program := range []string{"decode", "small", "prefill"} {
		begin := strings.Index(text, "\nprogram "+program+" ")
		end := len(text)
		if next := strings.Index(text[begin+1:], "\nprogram "); next >= 0 {
			end = begin + 1 + next
		}
		faulty := filepath.Join(t.TempDir(), "faulty.plan")
		for _, c := range []struct {
			step  string
			layer int // the first that differs, 4 for none
			args  []string
		}{{"blk.1.attn_norm", 1, []string{plan, faulty}}, {"output_norm", 4, []string{faulty, plan}}} {
			edited := regexp.MustCompile(`(`+regexp.QuoteMeta(c.step)+`\S* .* eps=)[0-9.e-]+`).ReplaceAllString(text[begin:end], "${1}0.5")
			if edited == text[begin:end] {
				t.Fatalf("program %s has no step %s", program, c.step)
			}
			saveFile(t, faulty, string(planfile.Seal([]byte(text[:begin]+edited+text[end:]))))
			r := pesti(append([]string{"compare", "--json", ids, "--max-kl", "1e-6"}, c.args...)...)
			found := &compare.Comparison{}
			if err := json.Unmarshal([]byte(r.out), found); err != nil {
				t.Fatal(err)
			}
			failsAfterOutput(t, r, "mean KL divergence")
			for j, p := range found.Programs {
				if (p.MeanKL > 1e-6) != (i == j) || i != j && p.MaxKL != 0 {
					t.Errorf("%s of %s: %+v", c.step, program, p)
				}
			}
			for n, l := range found.Layers {
				if (l.D > 1e-3) != (n >= c.layer) || n < c.layer && l.D != 0 || n >= c.layer && l.Program != program {
					t.Errorf("%s of %s: %+v", c.step, program, l)
				}
			}
			if c.layer == 4 {
				continue
			}
			r = pesti("check", faulty, ids)
			failsAfterOutput(t, r, "in layer 1, ", ", program "+program+", expected at most 0.0001")
		}
	}

	// A program that did not run is listed with the right reason, and a bound then fails.
	short, _ := demoPlan(t, "--precision", "exact", "--ctx", "128", "--ubatch", "16")
	for _, c := range []struct {
		args  []string
		words string
	}{
		{[]string{short, plan, ids}, "program prefill takes 32 tokens or more at a time, and the other plan at most 16"},
		{[]string{plan, short, ids}, "program prefill takes 32 tokens or more at a time, and the other plan at most 16"},
		{[]string{plan, plan, "--ids", "1,2,3"}, "program prefill takes 32 tokens or more at a time, expected"},
	} {
		args := append([]string{"compare", "--bisect"}, c.args...)
		if out := ok(t, args...); !strings.Contains(out, "\n\nno step differs") || !strings.Contains(out, "\nnot run: prefill, which takes 32") {
			t.Errorf("compare %q prints:\n%s", args, out)
		}
		failsAfterOutput(t, pesti(append(args, "--max-d", "0")...), c.words)
	}
	// Without --bisect each plan may divide the other's steps.
	if c := compared(t, short, plan, ids); len(c.Programs) != 4 || c.Programs[2].Program != "small of B "+plan || c.Programs[3].Program != "prefill" || c.MaxKL != 0 || c.Layers[3].D != 0 {
		t.Errorf("%+v, want all programs of both", c)
	}
}

// failsAfterOutput checks a verb that prints its results and then fails.
func failsAfterOutput(t *testing.T, r result, words ...string) {
	t.Helper()
	r.out = ""
	r.fails(t, 1, words...)
}
