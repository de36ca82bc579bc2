// Package conformance tests the module against independent programs and rules: a numpy oracle that
// is compared layer by layer, seeded faults that the measure must catch, and rules that no compiler
// checks, such as which package may import which. It may import everything. Only tests import it.
package conformance
