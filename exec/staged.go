package exec

import (
	"pesti/exec/plan"
	"pesti/gguf"
)

// A stagedTable is an embedding table that steps only gather rows from. Forward copies the rows of
// the batch's tokens from the file, so that a run does not touch the mapping: a newer Linux maps
// the whole folio of the page cache, up to 2 MiB, for each row that is touched.
type stagedTable struct {
	name   string
	tensor *gguf.Tensor
	row    int    // bytes
	data   []byte // a row for each token of a full batch
}

// stagedRows returns the memory for the rows of a weight, which it allocates once.
func (e *Engine) stagedRows(w *plan.Weight, size int64) []byte {
	for i := range e.staged {
		if e.staged[i].name == w.Name {
			return e.staged[i].data
		}
	}
	t, _ := e.file.Tensor(w.Tensor()) // CheckModel has checked it
	s := stagedTable{w.Name, t, int(w.Size / w.Dims[0]), make([]byte, size)}
	e.staged = append(e.staged, s)
	return s.data
}

// readStaged reads the rows of a batch's tokens, whose ids have been checked.
func (e *Engine) readStaged(tokens []int32) error {
	for i := range e.staged {
		s := &e.staged[i]
		for m, id := range tokens {
			if err := e.file.ReadAt(s.tensor, s.data[m*s.row:(m+1)*s.row], int64(id)*int64(s.row)); err != nil {
				return err
			}
		}
	}
	return nil
}
