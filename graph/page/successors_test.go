package page

import (
	"encoding/json"
	"maps"
	"regexp"
	"testing"
)

// TestSuccessors removes values in the same ways as passes.
func TestSuccessors(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		want          map[string]string
	}{
		"nothing":              {"  %x = a\n", "  %x = b\n  %y = c %x\n", map[string]string{}},
		"fused with its taker": {"  %n : f32[T] = norm %e, @w\n  %q : q8[T] = quantize %n\n", "  %q : q8[T] = norm_quantize %e, @w\n", map[string]string{"%n": "%q"}},
		"through a chain":      {"  %a = f %e\n  %b = g %a\n  %c = h %b\n", "  %c = all %e\n", map[string]string{"%a": "%c", "%b": "%c"}},
		"one of several":       {"  %p = f %e\n  %k = g %p\n", "  %q, %k : f32, f32 = qk %e\n", map[string]string{"%p": "%k"}},
		"a namesake":           {"  %o = f %e\n  %r = add %o, %e\n", "  %o.rows = f %e.rows\n  %r.rows = add %o.rows\n", map[string]string{"%o": "%o.rows", "%r": "%r.rows"}},
		"an old namesake":      {"  %o = f %e\n  %o.x = g %e\n  %y = h %o\n", "  %o.x = g %e\n  %y = hf %e\n", map[string]string{"%o": "%y"}},
		"dropped":              {"  %x = a\n  %y = b %x\n  %z = c\n", "  %z = c\n", map[string]string{"%x": "", "%y": ""}},
		"still taken":          {"  %x = a\n  %y = b %x\n", "  %y = b x=%x\n", map[string]string{}},
		"in a circle":          {"  %x = a %y\n  %y = b %x\n", "", map[string]string{"%x": "", "%y": ""}},
		"quoted":               {"  %\"a = b\" = f {s: \"%n\"}\n  %c = g %\"a = b\"\n", "  %c = h\n", map[string]string{"%\"a = b\"": "%c"}},
	} {
		if got := successors(c.before, c.after); !maps.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The script gets the values that each column lost relative to the one before, and that steps lost
// relative to the last graph.
func TestPageTellsAncestry(t *testing.T) {
	text := regexp.MustCompile(`const ancestry = (.*);`).FindStringSubmatch(write(t, "title", append(stages, Stage{"prefill", "plan", "steps", "  %x = y\n", "steps", -1})))
	var got []ancestry
	if text == nil || json.Unmarshal([]byte(text[1]), &got) != nil {
		t.Fatalf("no ancestry in the page: %q", text)
	}
	for i, want := range []ancestry{{From: -1}, {0, map[string]string{"%y": "%z"}}, {From: -1}, {From: 1}, {3, map[string]string{"%z": ""}}} {
		if got[i].From != want.From || !maps.Equal(got[i].Gone, want.Gone) {
			t.Errorf("column %d: %v, want %v", i, got[i], want)
		}
	}
}
