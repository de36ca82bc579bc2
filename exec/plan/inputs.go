package plan

import "slices"

// An Input is an io buffer that the caller fills before each run. The executor checks the range of
// each: token ids are in the vocabulary, positions in the context, and so on.
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

// inputOf returns the Input of a buffer, nil if the buffer is no input.
func inputOf(b *Buffer) *Input {
	for i := range inputs {
		if b.Class == IO && b.Name == inputs[i].Name {
			return &inputs[i]
		}
	}
	return nil
}
