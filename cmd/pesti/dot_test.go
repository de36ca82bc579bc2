package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestDot(t *testing.T) {
	dir := t.TempDir()
	plan, _ := demoPlan(t)
	texts := map[string]string{}
	for _, args := range []string{"", "--stage graph", "--stage fused", "--stage plan --all", "--layer 2", "--program prefill"} {
		command := append([]string{"dot", "demo"}, strings.Fields(args)...)
		out := ok(t, command...)
		if !strings.HasPrefix(out, "digraph") || ok(t, command...) != out {
			t.Errorf("dot %s prints no dot, or not the same twice", args)
		}
		for other, text := range texts {
			if text == out {
				t.Errorf("dot %q and dot %q print the same", args, other)
			}
		}
		texts[args] = out
	}
	if out := ok(t, "dot", "demo", "--stage", "plan"); out != texts[""] {
		t.Errorf("the default stage is not plan")
	}
	if out := ok(t, "dot", plan); out != texts[""] {
		t.Errorf("the plan file gives another picture than the model")
	}
	file := filepath.Join(dir, "p.DOT")
	if out := ok(t, "dot", plan, "-o", file); out != "" || readFile(t, file) != texts[""] {
		t.Errorf("-o writes another picture, or prints %.40q", out)
	}
	for name, head := range map[string]string{"p.svg": "<?xml", "p.png": "\x89PNG\r\n"} {
		file := filepath.Join(dir, name)
		r := pesti("dot", "demo", "--layer", "1", "-o", file)
		if r.code != 0 || r.out != "" || r.err != "" || !strings.HasPrefix(readFile(t, file), head) {
			t.Errorf("dot -o %s: %+v", name, r)
		}
	}
	if out := ok(t, "dot", plan, "-o", "-"); out != texts[""] {
		t.Errorf("-o - prints another picture")
	}
	pesti("dot", "demo", "-o", filepath.Join(dir, "no", "p.svg")).fails(t, 1, "p.svg")
}

// TestDotMemory draws the arena of a model and of its plan.
func TestDotMemory(t *testing.T) {
	plan, _ := demoPlan(t)
	svg := ok(t, "dot", plan, "--view", "memory")
	if !strings.HasPrefix(svg, "<?xml") || svg != ok(t, "dot", "demo", "--view", "memory", "-o", "-") {
		t.Errorf("dot --view memory prints no svg, or not the same for a model: %.80q", svg)
	}
	for name, head := range map[string]string{"m.svg": svg, "m.PNG": "\x89PNG\r\n"} {
		file := filepath.Join(t.TempDir(), name)
		if out := ok(t, "dot", plan, "--view", "memory", "-o", file); out != "" || !strings.HasPrefix(readFile(t, file), head) {
			t.Errorf("-o %s writes another picture, or prints %.40q", name, out)
		}
	}
	for _, args := range []string{"--layer 2", "--all", "--program prefill"} {
		if out := ok(t, append([]string{"dot", plan, "--view", "memory"}, strings.Fields(args)...)...); out == svg {
			t.Errorf("%s changes nothing", args)
		}
	}
}

// TestPictureInDocs checks that the README's pictures equal newly drawn ones.
func TestPictureInDocs(t *testing.T) {
	for name, args := range map[string][]string{"demo-plan.svg": nil, "demo-memory.svg": {"--view", "memory"}} {
		file := filepath.Join(t.TempDir(), name)
		ok(t, append([]string{"dot", "demo", "-t", "2", "--isa", "portable", "-o", file}, args...)...)
		if readFile(t, file) != readFile(t, "../../docs/"+name) {
			t.Errorf("docs/%s is not what dot draws now; make golden draws it again", name)
		}
	}
}
