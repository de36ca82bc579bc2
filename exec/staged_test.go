package exec_test

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/lower"
)

// The rows of a table that only embeddings read come from the file in every batch. If they are gone, the batch
// fails and changes nothing; once they are back, it gives the bits of an engine that reads the mapped table.
func TestStagedRows(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let a mapped file shrink")
	}
	const table = "token_embd.weight"
	f := tiny.Mapped(t, tiny.Config{Arch: "llama"})
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	compiled := func(ubatch int64) *plan.Plan {
		p := compile(t, m, lower.Options{ISA: "portable", Ubatch: ubatch}).Plan
		for i := range p.Weights {
			if w := &p.Weights[i]; w.Name == table {
				if _, staged := p.StagedBytes(w, plan.FileReads(p)[table]); staged != (ubatch < w.Dims[0]) {
					t.Fatalf("ubatch %d: rows of %s of %d are staged: %t", ubatch, table, w.Dims[0], staged)
				}
			}
		}
		return p
	}
	tensor, _ := f.Tensor(table)
	staged, mapped := session(t, open(t, m, compiled(4), 2)), session(t, open(t, m, compiled(tensor.Rows()), 2))
	want := append(feed(t, mapped, prompt(5)), feed(t, mapped, []int32{3})...)

	one := []int32{3}
	got := feed(t, staged, prompt(5))
	data, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(f.Path, tensor.Offset); err != nil {
		t.Fatal(err)
	}
	if _, err := staged.Feed(context.Background(), []int32{3}); err == nil || err.Error() != f.Path+": became shorter while it was read; open it again" {
		t.Errorf("a batch whose rows are gone: error %v", err)
	}
	if staged.Pos() != 5 {
		t.Errorf("position %d after a batch that failed at 5", staged.Pos())
	}
	if err := os.WriteFile(f.Path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got = append(got, feed(t, staged, []int32{3})...); !slices.Equal(got, want) {
		t.Error("logits differ from those of an engine that maps the table")
	}

	// A failed batch that starts before the end of its sequence truncates it, and leaves no logits.
	e := open(t, m, compiled(4), 2)
	step := func(e *exec.Engine, pos int32) ([]float32, error) {
		err := e.Forward(t.Context(), &exec.Batch{Tokens: one, Pos: []int32{pos}, Seq: []int32{0}, Rows: []int32{0}})
		return slices.Clone(e.Logits(0)), err
	}
	for pos := range int32(4) {
		if got, err = step(e, pos); err != nil || len(got) == 0 {
			t.Fatalf("position %d: %d logits, error %v", pos, len(got), err)
		}
	}
	if err := os.Truncate(f.Path, tensor.Offset); err != nil {
		t.Fatal(err)
	}
	if got, err := step(e, 2); err == nil || got != nil {
		t.Errorf("a batch whose rows are gone: %d logits, error %v", len(got), err)
	}
	if err := os.WriteFile(f.Path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := step(e, 3); err == nil || !strings.Contains(err.Error(), "position 3, expected at most 2") {
		t.Errorf("after a batch that failed at 2, a token at 3 gives the error %v", err)
	}
	if _, err = step(e, 2); err == nil {
		_, err = step(e, 3)
	}
	if err != nil {
		t.Error(err)
	}
	if again, err := step(e, 3); err != nil || !slices.Equal(again, got) {
		t.Errorf("after a batch that failed, the logits differ; error %v", err)
	}
	if n := testing.AllocsPerRun(5, func() { staged.Truncate(5); staged.Feed(context.Background(), one) }); n > 0 {
		t.Errorf("%.0f allocations for a token, expected none", n)
	}
}
