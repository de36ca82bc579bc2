// Package metrics owns the measures by which two computations of the same values are compared: d of
// a layer, the divergence of logits, and whether the most likely tokens agree. Tests and verbs share
// them. CONFORMANCE.md gives the reason for the definition of d.
//
// It is a leaf: it imports nothing of this module, and knows neither plans nor models. Its callers
// decide what to compare and which bounds to apply.
package metrics

// A Float is an element of the compared values: float32 for plans, float64 for some oracles.
type Float interface{ float32 | float64 }
