package plan

import "fmt"

// Names of the io buffers of a plan that computes the top-k logits on its device, so that the
// caller need not fetch whole rows: the argmax of each row, and the ids and logits of the k
// greatest in the order of kernel cuda.top.
const (
	Argmax    = "argmax"     // i32 [R]
	TopIDs    = "top_ids"    // i32 [R, k]
	TopLogits = "top_logits" // f32 [R, k]
)

// MaxTopK is the largest k of a plan's top-k: more than samplers use by default.
const MaxTopK = 64

// Logits returns the io buffer of a plan's logits, and the number of logits in a row. The buffer is
// f32 with R rows; anything else is an error.
func (p *Plan) Logits() (id int, width int64, err error) {
	b := p.SharedBuffer(IO, "logits")
	if b == nil {
		return 0, 0, fmt.Errorf("no io buffer %q, expected one: a plan computes logits", "logits")
	}
	at := p.Scope(nil).corners()
	elems, err := at.eval(b.Elems)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", bufferName(b), err)
	}
	row := at[least]
	row.R = 1
	if width, err = row.Eval(b.Elems); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", bufferName(b), err)
	}
	for i := range at {
		if n, ok := mul(at[i].R, width); !ok || n != elems[i] || width < 1 || b.Format != "f32" {
			return 0, 0, fmt.Errorf("%s: %s of %s, expected R times a number of f32", bufferName(b), b.Elems, b.Format)
		}
	}
	return b.ID, width, nil
}

// TopKSize returns the number of elements per row of a named io buffer of top-k logits, 0 if there
// is no such buffer. The plan must verify.
func (p *Plan) TopKSize(name string) int64 {
	b := p.SharedBuffer(IO, name)
	if b == nil || (b.Format == "i32") != (name != TopLogits) {
		return 0
	}
	scope := p.Scope(nil)
	if n, err := scope.Eval(b.Elems); err == nil && n%scope.R == 0 {
		return n / scope.R
	}
	return 0
}
