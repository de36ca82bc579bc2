package plan

import "fmt"

// A TableKind is what a table holds. The executor makes each when it opens a plan.
type TableKind string

// The kinds of tables.
const (
	// Sines are cosine and sine of the angle of each pair of a head's elements at each position, as
	// the rotation of the attention that reads them says: f32 [C, rot/2, 2].
	Sines TableKind = "sines"
	// Counters are 0, and are 0 again after each step that has counted with them.
	Counters TableKind = "counters"
)

// A Rotation is the parameters of a rotary position embedding (Su et al. 2021, arXiv:2104.09864), which
// a table of sines is made of.
type Rotation struct {
	Rot                                           int64 // elements of a head that turn
	Base, FreqScale, RampLow, RampHigh, Magnitude float64
	Freqs                                         string // the weight with divisors of the speeds, or ""
}

// RotationOf returns the rotation of an attention step.
func RotationOf(st *Step) Rotation {
	s := Scope{}.Of(st)
	r := Rotation{Rot: s.param("rot"), Base: s.number("base"), FreqScale: s.number("freq_scale"),
		RampLow: s.number("ramp_low"), RampHigh: s.number("ramp_high"), Magnitude: s.number("magnitude")}
	for _, a := range st.Args {
		if a.Role == "freqs" {
			r.Freqs = a.Weight
		}
	}
	return r
}

// A tableShape is what a step takes a table for.
type tableShape struct {
	kind     TableKind
	rotation Rotation // of sines
}

// table checks that all steps of all programs take a table for the same.
func (b *binding) table(a *boundArg, u *use) error {
	if (a.Table != "") != (u.Class == Table) {
		return fmt.Errorf("class is %s, expected a table for operands that are one, and only there", u.Class)
	}
	if a.Table == "" {
		return nil
	}
	shape := tableShape{kind: a.Table}
	if a.Table == Sines {
		shape.rotation = RotationOf(b.step)
	}
	have, ok := b.tables[u.ID]
	if !ok {
		b.tables[u.ID] = shape
	} else if have != shape {
		return fmt.Errorf("is %s of %+v, expected %s of %+v as in an earlier step: steps must agree on a table", shape.kind, shape.rotation, have.kind, have.rotation)
	}
	return nil
}
