package plan

import "fmt"

// Logits returns the io buffer that every plan hands its logits out in, and the number of logits
// in a row. The buffer is f32 and holds a row for each of the R that are wanted, whatever else the
// step is like; anything else is an error.
func (p *Plan) Logits() (id int, width int64, err error) {
	for id := range p.Buffers {
		b := &p.Buffers[id]
		if b.Class != IO || b.Name != "logits" {
			continue
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
				return 0, 0, fmt.Errorf("%s: %s of %s, expected R times a number of f32, a row for each that is wanted", bufferName(b), b.Elems, b.Format)
			}
		}
		return id, width, nil
	}
	return 0, 0, fmt.Errorf("no io buffer %q, expected one: a plan computes logits", "logits")
}
