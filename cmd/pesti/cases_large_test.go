package main

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"pesti/conformance/sparsegguf"
	"pesti/gguf"
)

// TestLargeModels opens, compiles and draws headers of models of up to 812 GB, one also split. The
// verbs read only the header, and a picture has few nodes for any number of layers. Times are
// processor times, which depend little on other load.
func TestLargeModels(t *testing.T) {
	draw := func(t *testing.T, args ...string) {
		if n := nodes(timed(t, append([]string{"dot"}, args...)...)); n < 10 || n > 30 {
			t.Errorf("dot %q has %d nodes, expected 10 to 30, those of a block or two", args[1:], n)
		}
	}
	check := func(t *testing.T, shape *sparsegguf.Shape, shards int) {
		model := sparsegguf.File(t, shape, shards)
		f, err := gguf.Open(model)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		t.Logf("%.1f GB in %d files", float64(f.Size)/1e9, shards)
		if last := &f.Tensors()[len(f.Tensors())-1]; last.Offset < 1<<32 {
			t.Errorf("the last tensor is at %d, expected it beyond what 32 bits reach", last.Offset)
		}
		out, want := timed(t, "inspect", model), fmt.Sprintf("tensors       %d with", len(f.Tensors()))
		if !strings.Contains(out, shape.Name) || !strings.Contains(out, want) {
			t.Errorf("inspect prints %q, expected %q", out, want)
		}
		for _, stage := range []string{"graph", "fused", "plan"} { // each compiles
			draw(t, model, "--stage", stage)
		}
		plan := filepath.Join(t.TempDir(), "large.plan")
		timed(t, "compile", model, "-o", plan)
		timed(t, "plan", "show", plan)
		if out := timed(t, "plan", "verify", plan); out != plan+": ok\n" {
			t.Errorf("plan verify prints %q", out)
		}
		if out := timed(t, "plan", "verify", plan, "--model", model); !strings.Contains(out, ": ok, for "+model+" (samples of its weights") {
			t.Errorf("plan verify prints %q, expected it to say that samples agree", out)
		}
		draw(t, plan)
	}
	for i := range sparsegguf.Shapes {
		t.Run(sparsegguf.Shapes[i].Name, func(t *testing.T) { check(t, &sparsegguf.Shapes[i], 1) })
	}
	t.Run("split", func(t *testing.T) { check(t, &sparsegguf.Shapes[1], 3) })
}

// timed runs the program in a separate process, which must succeed within a second of processor
// time, and returns its output.
func timed(t *testing.T, args ...string) string {
	t.Helper()
	p := start(t, args...)
	out, err := io.ReadAll(p.out)
	if code := p.exitCode(); err != nil || code != 0 {
		t.Fatalf("pesti %q: exit code %d, %v: %s", args, code, err, &p.err)
	}
	took := p.ProcessState.UserTime() + p.ProcessState.SystemTime()
	t.Logf("%v of %v: %s", took.Round(time.Millisecond), time.Second, args[0])
	if took > time.Second {
		t.Errorf("pesti %q took %v of the processor, expected a second at most", args, took)
	}
	return string(out)
}

// node is the beginning of a node in dot as graph/draw writes it.
var node = regexp.MustCompile(`(?m)^\s*n\d+\[`)

// nodes counts the nodes of a picture in dot.
func nodes(dot string) int { return len(node.FindAllString(dot, -1)) }
