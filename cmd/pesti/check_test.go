package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pesti/conformance/compare"
	"pesti/conformance/demo"
	"pesti/conformance/testenv"
	planfile "pesti/exec/plan"
	"pesti/gguf"
	"pesti/gguf/quant"
)

// report runs check, which must succeed, and returns its report.
func report(t *testing.T, args ...string) *compare.CheckReport {
	t.Helper()
	return decoded[compare.CheckReport](t, append([]string{"check", "--json"}, args...)...)
}

// TestCheck compares check's figures with CONFORMANCE.md's for this model and text, which come from
// the numpy oracle.
func TestCheck(t *testing.T) {
	r := report(t, "demo", "-p", fox)
	if r.Tokens != 19 || len(r.Layers) != 4 || !r.OK || r.Precision != "exact" || r.KV != "f32" || r.Bound != compare.Bounds.Exact {
		t.Errorf("check finds %+v", r)
	}
	for i, l := range r.Layers {
		if l.Layer != i || l.Position < 0 || l.Position >= 19 || l.Dim < 0 || l.Dim >= 256 {
			t.Errorf("layer %d: %+v", i, l)
		}
	}
	if d := r.Layers[2].D; d < 1e-6 || d > 1e-5 {
		t.Errorf("layer 2 has d %v, expected 1e-06 to 1e-05", d)
	}
	if d := r.Logits.Delta; d < 1e-6 || d > 3e-5 || r.Logits.Wrong != 0 {
		t.Errorf("logits %+v, expected |Δ| of 1e-06 to 3e-05", r.Logits)
	}

	text := ok(t, "check", "demo", "-p", fox)
	lines := strings.Split(text, "\n")
	if len(lines) != 9 || !strings.HasPrefix(lines[0], "layer ") || !strings.HasPrefix(lines[3], "02 ") ||
		!strings.Contains(lines[5], "19 of 19 positions") || lines[6] != "not run: prefill, which takes 32 tokens or more at a time" ||
		!strings.HasPrefix(lines[7], "ok: 19 tokens in decode, small, precision exact, cache f32") {
		t.Errorf("check prints:\n%s", text)
	}
	// The result does not depend on the form of the prompt or on the size of steps.
	file := filepath.Join(t.TempDir(), "prompt.txt")
	saveFile(t, file, fox)
	ids := call{stdin: fox, args: []string{"tokenize", "demo", "--ids"}}.run().out
	for _, args := range [][]string{{"-f", file}, {"--ids", ids}, {"-p", fox, "-t", "1"}, {"-p", fox, "--ubatch", "3"}} {
		got := ok(t, append([]string{"check", "demo"}, args...)...)
		if args[len(args)-2] == "--ubatch" { // then no program needs more tokens than the prompt has
			text = strings.Replace(text, lines[6]+"\n", "", 1)
		}
		if got != text {
			t.Errorf("check %q prints:\n%s\nwant:\n%s", args, got, text)
		}
	}
	for _, args := range [][]string{{"--passes", "none"}, {"--ids", "7"}, {"--precision", "exact", "--kv", "f16"}, {"--precision", "fast", "--kv", "f32", "--activations", "q8x2"}, {"--precision", "fast", "--activations", "mixed"}} {
		if args[0] != "--ids" {
			args = append(args, "-p", fox)
		}
		r := report(t, append(args, "demo")...)
		exact := args[1] != "fast" && r.KV == "f32"
		want := compare.Bounds.Fast
		switch {
		case exact:
			want = compare.Bounds.Exact
		case slices.Contains(args, "mixed"):
			want = compare.Bounds.OnePlane
		}
		if r.Bound != want {
			t.Errorf("check %q holds to %+v, want %+v", args, r.Bound, want)
		}
	}
}

// A plan is checked unchanged, with any output values.
func TestCheckPlan(t *testing.T) {
	plan, text := demoPlan(t, "--precision", "exact", "--ctx", "64")
	if got, want := ok(t, "check", plan, "-p", fox), ok(t, "check", "demo", "-p", fox, "--ctx", "64"); got != want {
		t.Errorf("check of the plan prints:\n%s\nwant:\n%s", got, want)
	}
	fast, _ := demoPlan(t, "--activations", "q8x2")
	r := report(t, fast, "-p", fox)
	if r.Precision != "fast" || r.Bound != compare.Bounds.Fast || !(r.Layers[3].D > 1e-4) {
		t.Errorf("check of a fast plan finds %+v", r)
	}

	// Faults in one layer, or in the step after the last layer, are reported at their place.
	spoil := func(old, new, near string) string {
		t.Helper()
		lines := strings.SplitAfter(text, "\n")
		changed := 0
		for i, line := range lines {
			if strings.Contains(line, near) && strings.Contains(line, old) {
				lines[i] = strings.Replace(line, old, new, 1)
				changed++
			}
		}
		if changed == 0 {
			t.Fatalf("no step of %s has %q", near, old)
		}
		path := filepath.Join(t.TempDir(), "spoilt.plan")
		saveFile(t, path, strings.Join(lines, ""))
		ok(t, "plan", "verify", path, "--seal")
		return path
	}
	for _, c := range []struct {
		old, new, near string
		layer          int // 4: only the logits differ
	}{
		{`act="silu"`, `act="gelu_tanh"`, " blk.2.ffn_gated ", 2},
		{", scale=0.", ", scale=1.", " blk.1.attn", 1},
		{"e-0", "e+0", " output_norm", 4},
	} {
		path := spoil(c.old, c.new, c.near)
		words := "in layer " + strconv.Itoa(c.layer) + ","
		if c.layer == 4 {
			words = "the logit of token"
		}
		r := pesti("check", path, "-p", fox)
		if r.code != 1 || !strings.Contains(r.err, path) || !strings.Contains(r.err, words) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s for %s: exit code %d, error %q, expected %q", c.new, c.old, r.code, r.err, words)
		}
		if !strings.Contains(r.out, "\ndiffers: 19 tokens") || strings.Count(r.out, "\n") != 8 {
			t.Errorf("%s for %s: check prints:\n%s", c.new, c.old, r.out)
		}
	}
}

// cancelingDemo is the demo with a large vector that block 2 adds to the residual stream and block 3
// subtracts again: the rounding error of the sum in float32 is then large relative to the rest.
func cancelingDemo(t *testing.T, size float32) string {
	t.Helper()
	from, err := gguf.Parse(demoName, demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	w := gguf.NewWriter()
	w.SetAll(from)
	add := map[string]float32{"blk.2.attn_v.bias": size, "blk.3.attn_v.bias": -size}
	for _, x := range from.Tensors() {
		data := x
		if x.Name == "blk.3.attn_output.weight" { // equal outputs, so that block 3 subtracts exactly what block 2 adds
			same, _ := from.Tensor("blk.2.attn_output.weight")
			data = *same
		}
		if by := add[x.Name]; by != 0 {
			values := slices.Clone(floatsOf(t, from, x.Name))
			for i := range values {
				values[i] += by
			}
			w.AddTensor(x.Name, quant.F32, x.Dims, floatBytes(values))
			continue
		}
		w.AddTensor(x.Name, data.Type, x.Dims, from.Bytes(&data))
	}
	path := filepath.Join(t.TempDir(), "canceling.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCheckFloor checks a model with a layer in which float32 itself exceeds the bound. A correct plan passes with
// a note, a faulty one fails.
func TestCheckFloor(t *testing.T) {
	model := cancelingDemo(t, 700)
	r := report(t, model, "-p", fox)
	floor, d := r.Layers[3].Floor, r.Layers[3].D
	if !r.OK || !(d > 1e-4) || !(floor > 3.4e-5) || r.Layers[3].Allowed != 3*floor || !(d <= 3*floor) {
		t.Errorf("layer 3: %+v, want one that float32 allows more than 1e-4", r.Layers[3])
	}
	for _, l := range r.Layers[:3] {
		if l.Floor != 0 || l.Allowed != r.Bound.D {
			t.Errorf("layer %d: %+v, want the bound as it is", l.Layer, l)
		}
	}
	words := fmt.Sprintf("\nlayer 03: gorgonia in float32 has d %.1e, so that %.1e is allowed\n", float64(floor), 3*float64(floor))
	if out := ok(t, "check", model, "-p", fox); !strings.Contains(out, words) {
		t.Errorf("check prints:\n%s\nwant it to hold %q", out, words)
	}

	plan := filepath.Join(t.TempDir(), "canceling.plan")
	ok(t, "compile", model, "--precision", "exact", "-o", plan)
	text := readFile(t, plan)
	for _, c := range []struct{ old, new, words string }{
		{`(blk\.3\.ffn_gated\S* .*act=)"silu"`, `${1}"gelu_tanh"`, "in layer 3, "},
		{`(blk\.3\.attn .*base=)10000\.0`, "${1}30000.0", "in layer 3, "},
		{`(blk\.1\.attn_norm\S* .*eps=)[0-9.e-]+`, "${1}0.01", "in layer 1, "},
	} {
		edited := regexp.MustCompile(c.old).ReplaceAllString(text, c.new)
		if edited == text {
			t.Fatalf("%s: the plan has no such step", c.old)
		}
		saveFile(t, plan, string(planfile.Seal([]byte(edited))))
		failsAfterOutput(t, pesti("check", plan, "-p", fox), c.words)
	}
}

func TestCheckErrors(t *testing.T) {
	for _, c := range []struct {
		code  int
		args  string
		words string
	}{
		{2, "", "expected MODEL or PLAN"},
		{2, "demo", "expected one of -p TEXT, -f FILE and --ids LIST"},
		{2, "demo -p a --ids 1", "expected one of"},
		{2, "demo --ids x", `found "x"`},
		{2, "demo --ids ,", "--ids is empty"},
		{2, "demo -p a --model demo", "no plan"},
		{1, "demo --ids 1,1536", "1536"},
		{1, "demo --ids 1,2,3 --ctx 2", "3 tokens, expected at most 2"},
		{1, "nowhere.gguf -p a", "nowhere.gguf"},
		{1, "demo -f nowhere.txt", "nowhere.txt"},
	} {
		pesti(append([]string{"check"}, strings.Fields(c.args)...)...).fails(t, c.code, c.words)
	}
}

// TestCheckModel checks a model of the size that people run.
func TestCheckModel(t *testing.T) {
	r := report(t, testenv.Model(t, testenv.SmolLM2), "-p", fox+" Then it slept.")
	if r.Tokens < 12 || len(r.Layers) != 30 || !r.OK || r.Logits.Wrong+r.Logits.Close != 0 {
		t.Errorf("check finds %+v", r)
	}
}
