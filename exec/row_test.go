package exec

import (
	"slices"
	"testing"

	"pesti/exec/cpu/kernel"
)

// A ranker is a processor backend that returns the top-k logits.
type ranker struct {
	processor
	ids     []int32 // ids of two rows
	fetched int
}

func (r *ranker) run(g *program, run kernel.Run) error {
	copy(r.topIDs, r.ids)
	return r.processor.run(g, run)
}

func (r *ranker) fetch(kernel.Run) error {
	r.fetched++
	return nil
}

// All rows of a pass hold either all logits or the top-k, whichever row the caller reads first.
func TestRowsOfAStep(t *testing.T) {
	v := victims(t)[0]
	e, err := Open(v.plan, v.file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.maxTopK, e.topIDs, e.topLogits = 2, make([]int32, 4), []float32{4, 3, 2, 1}
	for _, c := range []struct {
		name  string
		ids   []int32
		whole bool
	}{
		{"found", []int32{5, 6, 7, 8}, false},
		{"a row that is not finite", []int32{5, 6, -1, -1}, true},
		{"a row with fewer finite logits than requested", []int32{5, 6, 7, -1}, true},
	} {
		r := &ranker{processor: processor{e}, ids: c.ids}
		e.backend = r
		if err := e.Forward(t.Context(), &Batch{Tokens: []int32{1, 2}, Pos: []int32{0, 1}, Seq: []int32{0, 0}, Rows: []int32{0, 1}, TopK: 2}); err != nil {
			t.Fatal(err)
		}
		if r.fetched > 0 != c.whole {
			t.Errorf("%s: logits fetched %d times", c.name, r.fetched)
		}
		for _, row := range []int{1, 0} {
			got, want := e.Row(row), Row{e.topLogits[2*row:][:2], c.ids[2*row:][:2]}
			if c.whole {
				want = Row{Logits: e.logits[row*e.width:][:e.width]}
			}
			if !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Logits, want.Logits) || (e.Logits(row) != nil) != c.whole {
				t.Errorf("%s: row %d is of ids %v and %d logits, expected ids %v and %d", c.name, row, got.IDs, len(got.Logits), want.IDs, len(want.Logits))
			}
		}
	}
}
