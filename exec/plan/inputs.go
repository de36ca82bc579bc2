package plan

import "slices"

// An Input is an io buffer that the caller fills before each run. The executor holds each to its
// own range: token ids to the vocabulary, positions to the context, and so on.
type Input struct {
	Name   string
	Format string
	Elems  string // extent as a formula
}

// Inputs returns the table of inputs. A compiled plan has them all.
func Inputs() []Input { return slices.Clone(inputs) }

var inputs = []Input{
	{"tokens", "i32", "T"},
	{"pos", "i32", "T"},
	{"seq", "i32", "T"},
	{"rows", "i32", "R"},
	{"pages", "i32", "S*P"},
}

// inputOf returns the input that a buffer is, nil where it is none.
func inputOf(b *Buffer) *Input {
	for i := range inputs {
		if b.Class == IO && b.Name == inputs[i].Name {
			return &inputs[i]
		}
	}
	return nil
}
