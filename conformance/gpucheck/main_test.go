package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRun checks that a check which fails, hangs or takes too long does not prevent the later ones,
// and that the report has every check as soon as it has ended.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	r := &report{options: &options{out: path, each: 50 * time.Millisecond}}
	ended, end := context.WithCancel(t.Context())
	end()
	for i, c := range []struct {
		name  string
		ctx   context.Context
		check func(context.Context, found) error
		want  string
	}{
		{"good", t.Context(), func(_ context.Context, f found) error { f["x"] = 1; return nil }, ""},
		{"bad", t.Context(), func(context.Context, found) error { return errors.New("two\nlines") }, "two lines"},
		{"no number", t.Context(), func(_ context.Context, f found) error { f["x"] = math.NaN(); return nil }, ""},
		{"hangs", t.Context(), func(context.Context, found) error { select {} }, "took longer than 50ms and did not stop"},
		{"slow", t.Context(), func(ctx context.Context, _ found) error { <-ctx.Done(); return ctx.Err() }, "took longer than 50ms: context deadline exceeded"},
		{"late", ended, func(context.Context, found) error { return nil }, "context canceled"},
		{"after all that", t.Context(), func(context.Context, found) error { return nil }, ""},
	} {
		if ok := r.run(c.ctx, c.name, c.check); ok != (c.want == "") {
			t.Errorf("%s: %v", c.name, ok)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var kept report
		if err := json.Unmarshal(text, &kept); err != nil || len(kept.Checks) != i+1 {
			t.Fatalf("%s: %d checks in the report, %v, expected %d", c.name, len(kept.Checks), err, i+1)
		}
		if got := kept.Checks[i]; got.Name != c.name || got.OK != (c.want == "") || got.Error != c.want {
			t.Errorf("%+v, expected error %q", got, c.want)
		}
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "NaN") {
		t.Errorf("the measurements are not in the report: %s %v", text, err)
	}
}
