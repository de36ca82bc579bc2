package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec/plan"
)

// TestCheckFast seeds faults that change every element a little and none much. The KL divergence of
// the logits detects them.
func TestCheckFast(t *testing.T) {
	_, text := demoPlan(t, "--activations", "q8x2", "--ctx", "64")
	for _, c := range []struct{ name, old, new string }{
		{"scale of scores", `(attention.*) scale=0\.125`, "$1 scale=0.12"},
		{"epsilon times 100", `eps=9\.999999747378752e-05`, "eps=0.01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := regexp.MustCompile(c.old)
			if !old.MatchString(text) {
				t.Fatalf("no step has %q", c.old)
			}
			path := filepath.Join(t.TempDir(), "spoilt.plan")
			saveFile(t, path, string(plan.Seal([]byte(old.ReplaceAllString(text, c.new)))))
			differs(t, path, "mean KL divergence", "-p", fox)
		})
	}
}

// TestCheckStep seeds a fault that is within the bounds for one plane of activations. The comparison of steps
// finds it and names the value.
func TestCheckStep(t *testing.T) {
	sound, text := demoPlan(t, "--activations", "mixed", "--ctx", "64")
	if out := ok(t, "check", sound, "-p", fox); !strings.Contains(out, "\n51 values, each compared with what gorgonia computes from those before it: worst d ") {
		t.Errorf("check of a sound plan prints:\n%s", out)
	}
	faulty := regexp.MustCompile(`(blk\.2\.attn .*) scale=0\.125`).ReplaceAllString(text, "$1 scale=0.13")
	if faulty == text {
		t.Fatal("no step of blk.2.attn has the scale")
	}
	path := filepath.Join(t.TempDir(), "spoilt.plan")
	saveFile(t, path, string(plan.Seal([]byte(faulty))))
	differs(t, path, "d of blk.2.attn from what gorgonia computes", "-p", fox)
}

// differs requires that check reports a fault of a plan with the given words.
func differs(t *testing.T, plan, words string, args ...string) {
	t.Helper()
	r := pesti(append([]string{"check", plan}, args...)...)
	if r.code != exitError || !strings.Contains(r.out, "\ndiffers: ") || !strings.HasPrefix(r.err, "pesti: "+plan) || !strings.Contains(r.err, words) {
		t.Errorf("exit code %d, error %q, expected %q; check prints:\n%s", r.code, r.err, words, r.out)
	}
}

// TestCheckLargeLogits checks that a model with large logits passes, since the precision of float32
// is relative, and that a fault in its plan is still found.
func TestCheckLargeLogits(t *testing.T) {
	data, err := tiny.GGUF(tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) {
		w := m.Tensor("output_norm.weight").Data
		for i := range w {
			w[i] *= 1e5
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	model, path := filepath.Join(dir, "large.gguf"), filepath.Join(dir, "large.plan")
	saveFile(t, model, string(data))
	r := report(t, model, "--ids", "1,2,3,4,5")
	if l := r.Logits; !(l.Delta > r.Bound.Logits) || !(l.Allowed > 2*l.Delta) {
		t.Errorf("logits %+v, expected more than %v, and more than twice as much allowed", l, r.Bound.Logits)
	}
	ok(t, "compile", model, "-o", path, "--precision", "exact")
	old := regexp.MustCompile(`( output_norm\b.* eps=)[0-9.]+e-\d+`)
	text := readFile(t, path)
	if !old.MatchString(text) {
		t.Fatal("no step is the last norm")
	}
	saveFile(t, path, string(plan.Seal([]byte(old.ReplaceAllString(text, "${1}0.001")))))
	differs(t, path, "the logit of token", "--ids", "1,2,3,4,5")
}
