package graphviz

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	peer "github.com/goccy/go-graphviz"
)

const small = `digraph { rankdir=LR; a [label="blk.0.ä" shape=box]; a -> b -> c; a -> c; subgraph cluster_x { label="x"; b; c } }`

// TestRender compares each format with the output of the package that the module comes from.
func TestRender(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ctx := context.Background()
	for _, format := range []string{"svg", "json", "plain"} {
		gv, err := peer.New(ctx)
		if err != nil {
			t.Fatal(err)
		}
		g, err := peer.ParseBytes([]byte(small))
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := gv.Render(ctx, g, peer.Format(format), &want); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time from the cache
			got, err := Render(ctx, small, format)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want.Bytes()) || len(got) < 100 {
				t.Errorf("%s: %q, expected %q", format, got, want.Bytes())
			}
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, format, want string }{
		{"digraph { a -> ", "svg", "syntax error"},
		{"", "svg", "reading the graph"},
		{small, "hologram", `"hologram"`},
	} {
		out, err := Render(context.Background(), c.text, c.format)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q as %s: %q, error %v, expected one line with %q", c.text, c.format, out, err, c.want)
		}
	}
}

// TestWithoutCache draws without a cache folder.
func TestWithoutCache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", file)
	t.Setenv("HOME", file)
	if _, err := Render(context.Background(), small, "plain"); err != nil {
		t.Error(err)
	}
}

// TestModule checks that the module equals the one in the named package.
func TestModule(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/goccy/go-graphviz").Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "internal", "wasm", "graphviz.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := module(); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the module differs from the package's (%d and %d bytes, %v); run make graphviz", len(got), len(want), err)
	}
}
