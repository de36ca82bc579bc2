// Package oracle runs the tests of the numpy oracle, which are Python, so that they are part of go
// test. It imports conformance/testenv.
package oracle

import (
	"path/filepath"
	"regexp"
	"testing"

	"pesti/conformance/testenv"
)

// ran matches the output of unittest after at least one test.
var ran = regexp.MustCompile(`(?m)^Ran [1-9]\d* tests? in `)

// TestOracle runs test_oracle.py.
func TestOracle(t *testing.T) {
	for _, name := range testenv.Models {
		testenv.Model(t, name)
	}
	cmd := testenv.Python(t, "-m", "unittest")
	sources, err := filepath.Glob("*.py")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	testenv.Inputs(t, append(sources, filepath.Join("..", "models.py"))...)
	cmd.Stderr = nil
	out, err := cmd.CombinedOutput()
	if err != nil || !ran.Match(out) { // Python 3.11 succeeds even if it finds no tests
		t.Errorf("error %v, expected all of some tests to pass:\n%s", err, out)
	}
}
