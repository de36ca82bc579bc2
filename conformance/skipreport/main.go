// Command skipreport reads the output of go test -json. It prints a line for each package as go
// test does, the output of tests that fail, and at the end the tests that were skipped, which go
// test does not print for packages that pass. It exits with 1 if a test failed.
//
// It owns that report, and imports nothing of this module.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	failed, err := report(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "skipreport:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// An event is a line of go doc cmd/test2json, or of go help buildjson.
type event struct {
	Action, Package, Test, Output string
}

// A test is one of a package, or the package itself where its name is "".
type test struct{ pkg, name string }

// report writes the report of the events in r. Nothing read at all is an error.
func report(r io.Reader, w io.Writer) (failed bool, err error) {
	output := map[test][]string{}
	reasons := map[string][]string{} // tests by why they were skipped
	passed, d := 0, json.NewDecoder(r)
	for n := 0; ; n++ {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) && n > 0 {
			break
		} else if err != nil {
			return failed, fmt.Errorf("event %d of go test -json: %w", n, err)
		}
		id := test{e.Package, e.Test}
		switch e.Action {
		case "output":
			output[id] = append(output[id], e.Output)
			if e.Test == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "FAIL\t")) {
				fmt.Fprint(w, e.Output)
			}
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "fail", "build-fail":
			failed = true
			for _, line := range output[id] {
				fmt.Fprint(w, line)
			}
		case "skip":
			if e.Test != "" {
				why := reason(output[id])
				reasons[why] = append(reasons[why], e.Package+" "+e.Test)
			}
		case "pass":
			if e.Test != "" {
				passed++
			}
		}
		if e.Action != "output" {
			delete(output, id)
		}
	}
	total := 0
	var whys []string
	for why, tests := range reasons {
		total += len(tests)
		whys = append(whys, why)
	}
	slices.SortFunc(whys, func(a, b string) int {
		if d := len(reasons[b]) - len(reasons[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	fmt.Fprintf(w, "\n%d tests ran, %d were left out:\n", passed, total)
	for _, why := range whys {
		fmt.Fprintf(w, "\n  %s\n", why)
		for _, t := range reasons[why] {
			fmt.Fprintf(w, "    %s\n", t)
		}
	}
	return failed, nil
}

// reason returns what a test that was skipped said last, without where it said that.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "--- SKIP") || strings.HasPrefix(line, "=== ") {
			continue
		}
		if _, after, ok := strings.Cut(line, ".go:"); ok {
			_, line, _ = strings.Cut(after, ": ")
		}
		return line
	}
	return "no reason given"
}
