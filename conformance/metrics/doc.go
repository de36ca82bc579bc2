// Package metrics defines the measures for comparing two computations of the same values: d of a
// layer, the divergence of logits, and whether the most likely tokens agree. Tests and verbs share
// them. CONFORMANCE.md gives the reason for the definition of d.
//
// It imports no package of this module. Its callers decide what to compare and which bounds to
// apply.
package metrics

// A Float is an element of the compared values: float32 for plans, float64 for some oracles.
type Float interface{ float32 | float64 }
