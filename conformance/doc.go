// Package conformance proves the module against what is not part of it: a numpy oracle layer by
// layer, seeded faults that its measure must catch, and rules that no compiler checks, such as
// which package may import which. It may import everything, and nothing but tests imports it.
package conformance
