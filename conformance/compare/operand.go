package compare

import (
	"context"
	"strings"
)

// An Operand is one of the two inputs of a comparison: a plan that runs, or a folder of values.
type Operand interface {
	Describe() *Description
	Vocabulary() int // number of logits for a position

	// values returns the operand's values for ids[from:to], after the tokens before them.
	values(ctx context.Context, ids []int32, from, to int) (*values, error)

	// checkIDs returns an error if the operand only has values for other tokens.
	checkIDs(ids []int32) error

	Close()
}

// values are an operand's values for some tokens: each slice has a row for each token.
type values struct {
	layers [][]float32 // the residual stream after each block
	logits []float32
	steps  stepValues // all values of a plan; nil where they are not wanted
}

// A Description identifies an operand.
type Description struct {
	Letter    string   `json:"-"`                   // A or B; "" where there is only one
	Name      string   `json:"name"`                // of the model, plan or folder
	But       []string `json:"but,omitempty"`       // compile options of B that differ from A's
	Precision string   `json:"precision,omitempty"` // of a plan, like the following
	KV        string   `json:"kv,omitempty"`
	Passes    string   `json:"passes,omitempty"` // passes that are switched off
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
