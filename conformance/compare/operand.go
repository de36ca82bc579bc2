package compare

import (
	"context"
	"strings"
)

// An Operand is one of the two things to compare: a plan that runs, or a folder of values.
type Operand interface {
	Describe() *Description
	Vocabulary() int // logits of a position

	// values returns what the operand computes for ids[from:to], after those before.
	values(ctx context.Context, ids []int32, from, to int) (*values, error)

	// checkIDs returns an error where the operand has values for other tokens than these.
	checkIDs(ids []int32) error

	Close()
}

// values are what an operand computes for some tokens: each slice has a row for each of them.
type values struct {
	layers [][]float32 // the residual stream after each block
	logits []float32
}

// A Description says what an operand is.
type Description struct {
	Letter    string   `json:"-"`                   // A or B; "" where there is only one
	Name      string   `json:"name"`                // of the model, plan or folder
	But       []string `json:"but,omitempty"`       // options of the compilation that B has instead of those of A
	Precision string   `json:"precision,omitempty"` // of a plan, like the following
	KV        string   `json:"kv,omitempty"`
	Passes    string   `json:"passes,omitempty"` // those left out
}

// String names the operand, and distinguishes it from the other one, which may have the same name.
func (d *Description) String() string {
	name := d.Name
	if d.Letter != "" {
		name = d.Letter + " " + name
	}
	if len(d.But) > 0 {
		name += " (" + strings.Join(d.But, ", ") + ")"
	}
	return name
}
