// Package compare measures how far two computations of the same tokens differ, and checks a plan
// against an independent executor. It is product code: the verbs compare and check, and programs that
// import it, use it.
//
// An Operand is a plan that runs, or a folder of values that another program has written. Compare
// measures the divergence of the logits and d of each layer. Bisect finds the first step whose
// value differs. A Checker compares a plan with the model's unfused graph, which gorgonia computes
// in float64.
//
// It contains the schedules that run every program of a plan (coverage), the bounds of check, and
// the names of the files in a folder of values. Package metrics defines d and the divergence. It
// may import every package of this module except cmd, and gorgonia through conformance/gorgoniaref.
// It prints nothing.
package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// A Progress reports the progress of a computation.
type Progress struct {
	Part        string // what is computed, such as "program decode"
	Done, Total int
	Unit        string // of Done and Total: tokens or layers
}

func (p Progress) String() string {
	return fmt.Sprintf("%s: %d of %d %s", p.Part, p.Done, p.Total, p.Unit)
}

// tell reports a progress if report is set.
func tell(report func(Progress), part string, done, total int, unit string) {
	if report != nil {
		report(Progress{part, done, total, unit})
	}
}

// A Number may be infinite or NaN, which JSON cannot represent: there it is null.
type Number float64

func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(n), 0) || math.IsNaN(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads null as +Inf.
func (n *Number) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Number(math.Inf(1))
		return nil
	}
	return json.Unmarshal(b, (*float64)(n))
}

// An OperandError is an error about one operand.
type OperandError struct {
	Operand string // as its Description prints it
	Err     error
}

func (e *OperandError) Unwrap() error { return e.Err }

// Error puts the operand's name before the error. It replaces the executor's prefix "plan".
func (e *OperandError) Error() string {
	text := e.Err.Error()
	if strings.HasPrefix(text, e.Operand+": ") {
		return text
	}
	return e.Operand + ": " + strings.TrimPrefix(text, "plan: ")
}
