// Package measure owns the measures by which two computations of the same thing are compared, so
// that tests and verbs mean the same by them: d of a layer, the divergence of logits, their best
// tokens. CONFORMANCE.md tells why d is what it is.
//
// It is a leaf: it imports nothing of this module, and knows neither plans nor models. What is
// compared with what, and what is good enough, is for its callers to say.
package measure

// A Float is an element of what is compared: ours are float32, those of an oracle may be float64.
type Float interface{ float32 | float64 }
