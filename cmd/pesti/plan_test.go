package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/gguf"
)

// demoPlan compiles the demo and returns the plan's path and text.
func demoPlan(t *testing.T, args ...string) (path, text string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "demo.plan")
	ok(t, append([]string{"compile", "demo", "-o", path}, args...)...)
	return path, readFile(t, path)
}

func TestPlanShow(t *testing.T) {
	path, _ := demoPlan(t, "--isa", "portable", "--ubatch", "100", "--sequences", "2")
	var got map[string]any
	if err := json.Unmarshal([]byte(ok(t, "plan", "show", path, "--json")), &got); err != nil {
		t.Fatal(err)
	}
	keys := func(v any) []string {
		var names []string
		for k := range v.(map[string]any) {
			names = append(names, k)
		}
		slices.Sort(names)
		return names
	}
	if want := []string{"arena", "arena_lower_bound", "arena_unshared", "io", "packed", "state", "tables", "weight"}; !slices.Equal(keys(got["memory"]), want) {
		t.Errorf("memory has %q, want %q", keys(got["memory"]), want)
	}
	programs := got["programs"].(map[string]any)
	if want := []string{"decode", "prefill", "small", "tiles"}; !slices.Equal(keys(programs), want) {
		t.Errorf("programs are %q, want %q", keys(programs), want)
	}
	for name, tokens := range map[string][]any{"decode": {1.0, 2.0}, "small": {3.0, 31.0}, "prefill": {32.0, 100.0}} {
		p := programs[name].(map[string]any)
		if !slices.Equal(p["tokens"].([]any), tokens) {
			t.Errorf("%s: tokens %v, want %v", name, p["tokens"], tokens)
		}
		for _, key := range []string{"steps", "waves", "steps_per_layer", "waves_per_layer"} {
			if n, ok := p[key].(float64); !ok || n < 1 {
				t.Errorf("%s: %s is %v, want a count", name, key, p[key])
			}
		}
	}
	if f := got["fusions"].(map[string]any); f["qkv"] != 4.0 || f["gated_mlp"] != 4.0 || f["attention"] != 4.0 {
		t.Errorf("fusions are %v, want 4 of each, the layers", f)
	}
	if got["fallbacks"] != 0.0 {
		t.Errorf("fallbacks are %v, want none", got["fallbacks"])
	}

	// A program that a plan lacks is null, not absent.
	one, _ := demoPlan(t, "--ubatch", "1")
	if err := json.Unmarshal([]byte(ok(t, "plan", "show", one, "--json")), &got); err != nil {
		t.Fatal(err)
	}
	programs = got["programs"].(map[string]any)
	if small, has := programs["small"]; !has || small != nil || programs["decode"] == nil || len(programs) != 4 {
		t.Errorf("with --ubatch 1 the programs are %v", programs)
	}

	page := ok(t, "plan", "show", path)
	for _, word := range []string{`qwen2 "PESTI demo storyteller"`, "the embedded model", "cpu portable", "arena", "decode", "1-2", "32-100", "matmul_group"} {
		if !strings.Contains(page, word) {
			t.Errorf("plan show does not print %q:\n%s", word, page)
		}
	}
	none, _ := demoPlan(t, "--passes", "none")
	if err := json.Unmarshal([]byte(ok(t, "plan", "show", none, "--json")), &got); err != nil {
		t.Fatal(err)
	}
	if n, ok := got["fallbacks"].(float64); !ok || n == 0 {
		t.Errorf("without passes there are %v fallbacks, want some", got["fallbacks"])
	}
}

func TestPlanVerify(t *testing.T) {
	path, text := demoPlan(t)
	if out := ok(t, "plan", "verify", path); out != path+": ok\n" {
		t.Errorf("verify prints %q", out)
	}
	if out := ok(t, "plan", "verify", path, "--model", "demo"); !strings.Contains(out, "ok, for demo") {
		t.Errorf("verify --model prints %q", out)
	}
	pesti("plan", "verify", path, "--model", "none.gguf").fails(t, 1, "none.gguf")
	pesti("plan", "verify", "none.plan").fails(t, 1, "none.plan")
	pesti("plan", "show", "none.plan").fails(t, 1, "none.plan")
	page := filepath.Join(t.TempDir(), "page.plan")
	saveFile(t, page, "<html>")
	pesti("plan", "verify", page).fails(t, 1, page, "pesti-plan")

	// A model with one changed weight differs only in the digest of the weights.
	changed := demoFile(t, func(b []byte) { b[len(b)-100] ^= 1 })
	pesti("plan", "verify", path, "--model", changed).fails(t, 1, path, changed, "weights")
	runs(t, path, "--model", changed, "-p", story, "-n", "1")
	// A plan without a digest of the weights cannot be compared.
	saveFile(t, path, string(plan.Seal([]byte(regexp.MustCompile(`data=\S+`).ReplaceAllString(text, `data=""`)))))
	pesti("plan", "verify", path, "--model", "demo").fails(t, 1, path, "no digest", "pesti compile", "WeightsDigest")
}

// otherName makes another model of the demo.
func otherName(w *gguf.Writer) { w.SetStr("general.name", "PESTI demo storyteller's twin") }

// Each refusal gives its reason, and names the plan.
func TestPlanIsRefused(t *testing.T) {
	path, text := demoPlan(t, "--isa", "portable")
	other := rewrittenDemo(t, true, otherName)
	sealed := func(old, new string) string {
		edited := strings.Replace(text, old, new, 1)
		if edited == text {
			t.Fatalf("no %q in the plan", old)
		}
		return string(plan.Seal([]byte(edited)))
	}
	pesti("run", path, "--model", other, "-p", story).fails(t, 1, path, other)
	pesti("bench", path, "--model", other).fails(t, 1, path, other)
	pesti("plan", "verify", path, "--model", other).fails(t, 1, path, other, "another model")

	refused := func(text string, words ...string) {
		t.Helper()
		saveFile(t, path, text)
		words = append(words, path)
		pesti("run", path, "-p", story).fails(t, 1, words...)
		pesti("bench", path).fails(t, 1, words...)
	}
	refused(sealed("pesti-plan 2\n", "pesti-plan 3\n"), "plan format 3", "reads 2")
	refused(sealed("pesti-plan 2\n", "pesti-plan 1\n"), "plan format 1 of an older program", "compile the model again")
	refused(strings.Replace(text, "sequences=1", "sequences=2", 1), "changed", "--seal")
	refused(text[:len(text)/2], "--seal")
	refused(sealed("cpu portable", "cpu neondot+"), "neondot+")
	if missing := missingISA(); missing != "" {
		refused(sealed("cpu portable", "cpu "+missing), missing)
	}
	refused(sealed("sha256:", "sha256:0"), "directory", "names no model", "--model")
	saveFile(t, path, text)
	r := call{args: []string{"run", path, "-p", story}, env: map[string]string{isaVariable: "sse2"}}.run()
	r.fails(t, 1, path, isaVariable)
}

// missingISA returns an instruction set that this machine or build lacks, "" if there is none.
func missingISA() string {
	for _, name := range []string{"neondot", "amx"} {
		if _, err := chooseISA(name, ""); err != nil {
			return name
		}
	}
	return ""
}

func TestPlanSeal(t *testing.T) {
	path, text := demoPlan(t)
	// An edit after which the plan is still valid.
	edited := strings.Replace(text, "PESTI demo storyteller", "My storyteller", 1)
	saveFile(t, path, edited)
	pesti("plan", "verify", path).fails(t, 1, path, "--seal")
	pesti("plan", "verify", path, "--seal", "--model", rewrittenDemo(t, true, otherName)).fails(t, 1, path, "another model")
	if readFile(t, path) != edited {
		t.Errorf("a plan that was refused is changed")
	}
	if out := ok(t, "plan", "verify", path, "--seal"); !strings.Contains(out, "sealed") {
		t.Errorf("--seal prints %q", out)
	}
	if out := ok(t, "plan", "show", path); !strings.Contains(out, "My storyteller") {
		t.Errorf("the sealed plan shows %q", out)
	}
	runs(t, path, "-p", story, "-n", "1")

	// Edits that would let a step access memory outside its buffers.
	buffer := regexp.MustCompile(`(?m)^  buffer b\d+ +arena +f32 +\S+ +size=(\d+) .*offset=(\d+)`)
	m := buffer.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no arena buffer in the plan:\n%.2000s", text)
	}
	line := m[0]
	for _, c := range []struct{ old, new, word string }{
		{line, strings.Replace(line, "size="+m[1], "size=64", 1), "buffer"},
		{line, regexp.MustCompile(`offset=\d+`).ReplaceAllString(line, "offset=1073741824"), "buffer"},
		{"n0=256", "n0=512", "step"},
		{"heads=4", "heads=8", "step"},
	} {
		edited := strings.Replace(text, c.old, c.new, 1)
		if edited == text {
			t.Fatalf("no %q in the plan", c.old)
		}
		saveFile(t, path, edited)
		pesti("plan", "verify", path, "--seal").fails(t, 1, path, c.word)
		if readFile(t, path) != edited {
			t.Errorf("a plan that was refused is changed")
		}
		saveFile(t, path, string(plan.Seal([]byte(edited))))
		pesti("run", path, "-p", story).fails(t, 1, path, c.word)
	}
}
