package plan

import "fmt"

// A TableKind names the contents of a table. The executor fills tables when it opens a plan.
type TableKind string

// The kinds of tables.
const (
	// Sines holds RoPE's cosine and sine of each element pair of a head at each position, for the
	// Rotation of the attention steps that read it: f32 [C, rot/2, 2].
	Sines TableKind = "sines"
	// Counters are 0 before and after each step that counts with them.
	Counters TableKind = "counters"
)

// A Rotation holds the parameters of a rotary position embedding (Su et al. 2021,
// arXiv:2104.09864), from which a table of sines is computed.
type Rotation struct {
	Rot                                           int64 // rotated elements of a head
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

// A tableShape is the kind and the contents that a step expects of a table.
type tableShape struct {
	kind     TableKind
	rotation Rotation // of sines
}

// table checks that all steps of all programs expect the same contents of a table.
func (b *binding) table(a *boundArg, u *use) error {
	if (a.Table != "") != (u.Class == Table) {
		return fmt.Errorf("class is %s, expected a table for a table operand, and for no other", u.Class)
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
