package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pesti/exec/plan"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with a golden file.
func golden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if readFile(t, path) != text {
		t.Errorf("the text differs from %s; if on purpose, go test ./cmd/pesti -run %s -update writes it anew. Got:\n%s", path, t.Name(), text)
	}
}

// TestPlanDiff compares the diffs of single options with golden files.
func TestPlanDiff(t *testing.T) {
	// For one instruction set, so that the file is the same on all machines.
	compiled := func(args string) (path, text string) {
		t.Helper()
		return demoPlan(t, append(strings.Fields(args), "--isa", "portable")...)
	}
	base, text := compiled("-t 2")
	var page strings.Builder
	for _, args := range []string{"-t 2 --precision exact", "-t 2 --passes=-fuse_gated_mlp", "-t 2 --ctx 256", "-t 3", "-t 2 --ubatch 1", "-t 2 --kv f32"} {
		other, _ := compiled(args)
		r := pesti("plan", "diff", base, other)
		if r.code != exitError || r.err != fmt.Sprintf("pesti: %s and %s differ\n", base, other) {
			t.Errorf("%s: exit code %d, %q", args, r.code, r.err)
		}
		fmt.Fprintf(&page, "# %s\n%s", args, r.out)
	}

	// One step in one program, like an edit by hand.
	edited := regexp.MustCompile(`(step 7 .*blk\.0\.ffn_out\.x .*split=rows/)32`).ReplaceAllString(text, "${1}64")
	if edited == text {
		t.Error("the plan has no such step 7")
	}
	hand := filepath.Join(t.TempDir(), "hand.plan")
	saveFile(t, hand, string(plan.Seal([]byte(edited))))
	fmt.Fprintf(&page, "# by hand\n%s", pesti("plan", "diff", base, hand).out)
	golden(t, "testdata/plan-diff.golden", page.String())

	if out := ok(t, "plan", "diff", base, base); out != "" {
		t.Errorf("a plan differs from itself: %q", out)
	}
	if out := ok(t, "plan", "diff", base, base, "--json"); out != "[]\n" {
		t.Errorf("with --json a plan differs from itself: %q", out)
	}
}

func TestPlanDiffJSON(t *testing.T) {
	a, _ := demoPlan(t, "-t", "2")
	b, _ := demoPlan(t, "-t", "3")
	count := func(args ...string) (all, placement int) {
		var list []plan.Difference
		if err := json.Unmarshal([]byte(pesti(append([]string{"plan", "diff", a, b, "--json"}, args...)...).out), &list); err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.Placement {
				placement++
			}
			if d.What == "threads" && (d.Section != "target" || d.From != 2.0 || d.To != 3.0) {
				t.Errorf("threads: %+v", d)
			}
		}
		return len(list), placement
	}
	if all, placement := count(); all != 4 || placement != 0 {
		t.Errorf("%d differences, %d of placement, want threads and three sizes of the arena", all, placement)
	}
	if all, placement := count("--all"); placement == 0 || all != placement+4 {
		t.Errorf("with --all %d differences, %d of placement", all, placement)
	}
	// A difference of the model comes first.
	twin := rewrittenDemo(t, true, otherName)
	c := filepath.Join(t.TempDir(), "twin.plan")
	ok(t, "compile", twin, "-o", c, "-t", "3")
	if out := pesti("plan", "diff", a, c).out; !strings.HasPrefix(out, "model\n  name: ") {
		t.Errorf("plans of two models differ in:\n%s", out)
	}
	pesti("plan", "diff", a, "none.plan").fails(t, 1, "none.plan")
	pesti("plan", "diff", a).fails(t, 2, "1 argument")
	pesti("plan", "diff", "demo", a).fails(t, 2, "is a GGUF model")
}

func TestSpans(t *testing.T) {
	for want, n := range map[string][]int{"": nil, "3": {3}, "0–1": {0, 1}, "0, 2–4, 9": {0, 2, 3, 4, 9}} {
		if got := spans(n); got != want {
			t.Errorf("spans(%v) = %q, want %q", n, got, want)
		}
	}
}
