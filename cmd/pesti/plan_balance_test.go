package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pesti/conformance/testenv"
	planfile "pesti/exec/plan"
)

// The bytes that two workers read in a wave of a decoded token differ by at most 3 % from their
// mean, on every model, and plan show prints this.
func TestPlanShowBalance(t *testing.T) {
	for _, name := range []string{demoName, "smollm2-135m-instruct-q4_1.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "gemma-3-270m-q4_k_m.gguf"} {
		t.Run(name, func(t *testing.T) {
			model := name
			if name != demoName {
				model = testenv.Model(t, name)
			}
			file := filepath.Join(t.TempDir(), "m.plan")
			ok(t, "compile", model, "-o", file, "-t", "2")
			s := decoded[struct {
				Programs map[string]struct{ Balance planfile.Balance }
			}](t, "plan", "show", file, "--json")
			b := s.Programs["decode"].Balance
			if b.Tokens != 1 || b.Cost.Weights == 0 || b.Cost.MACs == 0 || len(b.Waves) == 0 {
				t.Errorf("the balance of decode is %+v", b)
			}
			for i, w := range b.Waves {
				if w.Imbalance > 0.03 {
					t.Errorf("wave %d: workers read %v, an imbalance of %.1f %%", i, w.Bytes, 100*w.Imbalance)
				}
			}
			page := ok(t, "plan", "show", file)
			for _, words := range []string{"decode, 1 tokens at position", "worker 1", "imbalance", "norm, gated_mlp"} {
				if !strings.Contains(page, words) {
					t.Errorf("plan show does not print %q:\n%s", words, page)
				}
			}
		})
	}
	many, _ := demoPlan(t, "-t", "9")
	if page := ok(t, "plan", "show", many); !strings.Contains(page, "least of 9 workers") || strings.Contains(page, "worker 1") {
		t.Errorf("plan show for 9 threads prints\n%s", page)
	}
}

// TestPlanShowBalanceOfDevices checks that waves of the processor list its workers, and waves of a
// device a single one without a balance.
func TestPlanShowBalanceOfDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hybrid.plan")
	ok(t, "compile", "demo", "--target", "cuda", "--gpu-layers", "2", "-t", "2", "--ctx", "64", "-o", path)
	text := ok(t, "plan", "show", path)
	for _, line := range []string{`waves  device +worker 0 +worker 1  imbalance  steps`, `2 +0 .* KiB .* KiB +0\.\d %  attention`, `2 +1 +[\d.]+ KiB +cuda\.attention`} {
		if !regexp.MustCompile(line).MatchString(text) {
			t.Errorf("found no line like %q in\n%s", line, text)
		}
	}
}
