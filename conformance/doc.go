// Package conformance tests the module against programs that share no code with it: a numpy oracle
// layer by layer, llama.cpp, and seeded faults that the bounds must catch. It may import everything,
// and only tests import it.
package conformance
