// Command skipreport reads the output of go test -json. It prints a line for each package as go
// test does, the output of tests that fail, and at the end the tests that were skipped, which go
// test does not print for packages that pass. It exits with 1 if a test failed.
//
//	go test -json ./... | go run ./conformance/skipreport -all -elsewhere 'runs in make prove' -times bin/times/test.txt
//	go run ./conformance/skipreport -slowest 20 bin/times/*.txt
//
// With -all it exits with 1 also if a test was skipped. With -elsewhere, a test whose skip reason
// begins with that text does not count as skipped, since another run includes it. With -times, the
// time of each test that has no subtests goes to a file; -slowest prints the slowest tests of such
// files.
//
// It imports no package of this module.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	all := flag.Bool("all", false, "fail if a test is skipped")
	elsewhere := flag.String("elsewhere", "", "reason of tests that are skipped because another run has them")
	times := flag.String("times", "", "file to write the time of each test to")
	slow := flag.Int("slowest", 0, "print this many of the slowest tests, from files that -times wrote")
	flag.Parse()
	var failed bool
	var err error
	if *slow > 0 {
		err = slowest(flag.Args(), *slow, os.Stdout)
	} else {
		var r results
		r, err = report(os.Stdin, os.Stdout, *elsewhere)
		failed = r.failed > 0 || *all && r.skipped > 0
		if *times != "" {
			err = errors.Join(err, writeTimes(*times, r.times))
		}
	}
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
	Elapsed                       float64 // seconds
}

// A test is a test of a package, or the package itself if its name is "".
type test struct{ pkg, name string }

// A timed is a test with its time in seconds.
type timed struct {
	test
	seconds float64
}

// results counts tests. failed includes packages that do not build or end early.
type results struct {
	passed, failed, skipped int
	times                   []timed // of tests without subtests
}

// report writes the report of the events in r. It is an error if the events end before a package's
// result.
func report(r io.Reader, w io.Writer, elsewhere string) (results, error) {
	var sum results
	output := map[test][]string{}
	reasons := map[string][]string{} // tests by skip reason
	parents, running := map[test]bool{}, map[string]bool{}
	other, d := 0, json.NewDecoder(r)
	for n := 0; ; n++ {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) && n > 0 && len(running) == 0 {
			break
		} else if errors.Is(err, io.EOF) && n > 0 {
			return sum, fmt.Errorf("go test -json ends before %d packages do", len(running))
		} else if err != nil {
			return sum, fmt.Errorf("event %d of go test -json: %w", n, err)
		}
		id := test{e.Package, e.Test}
		switch e.Action {
		case "start":
			running[e.Package] = true
		case "run":
			if at := strings.LastIndexByte(e.Test, '/'); at > 0 {
				parents[test{e.Package, e.Test[:at]}] = true
			}
		case "output":
			output[id] = append(output[id], e.Output)
			if e.Test == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "FAIL\t")) {
				fmt.Fprint(w, e.Output)
			}
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "fail", "build-fail":
			if e.Test != "" || !parents[id] { // a package counts as failed if none of its tests failed
				sum.failed++
			}
			parents[test{e.Package, ""}] = true
			for _, line := range output[id] {
				if e.Test != "" || !strings.HasPrefix(line, "FAIL") { // report prints its own such line
					fmt.Fprint(w, line)
				}
			}
		case "skip":
			if why := reason(output[id]); e.Test == "" {
				// a package without tests
			} else if elsewhere != "" && strings.HasPrefix(why, elsewhere) {
				other++
			} else {
				sum.skipped++
				reasons[why] = append(reasons[why], e.Package+" "+e.Test)
			}
		case "pass":
			if e.Test != "" {
				sum.passed++
			}
		}
		if e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
			delete(running, e.Package)
		}
		if e.Test != "" && !parents[id] && (e.Action == "pass" || e.Action == "fail") {
			sum.times = append(sum.times, timed{id, e.Elapsed})
		}
		if e.Action != "output" {
			delete(output, id)
		}
	}
	whys := make([]string, 0, len(reasons))
	for why := range reasons {
		whys = append(whys, why)
	}
	slices.SortFunc(whys, func(a, b string) int {
		return cmp.Or(len(reasons[b])-len(reasons[a]), strings.Compare(a, b))
	})
	if len(whys) > 0 {
		fmt.Fprintf(w, "\nSkipped tests:\n")
	}
	for _, why := range whys {
		fmt.Fprintf(w, "\n  %s\n", why)
		for _, t := range reasons[why] {
			fmt.Fprintf(w, "    %s\n", t)
		}
	}
	if other > 0 {
		fmt.Fprintf(w, "\n%d tests are not in this run: %s\n", other, elsewhere)
	}
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped)
	return sum, nil
}

// reason returns the last message of a skipped test, without its source position.
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

// writeTimes writes a line for each test to a file, and creates its folder.
func writeTimes(path string, times []timed) error {
	var b strings.Builder
	for _, t := range times {
		fmt.Fprintf(&b, "%.2f %s %s\n", t.seconds, t.pkg, t.name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// slowest prints the n slowest tests of the files, each with its file's name.
func slowest(paths []string, n int, w io.Writer) error {
	type line struct {
		timed
		run string
	}
	var all []line
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for row := range strings.Lines(string(text)) {
			l := line{run: strings.TrimSuffix(filepath.Base(path), ".txt")}
			if _, err := fmt.Sscan(row, &l.seconds, &l.pkg, &l.name); err != nil {
				return fmt.Errorf("%s: found %q, expected seconds, package and test", path, row)
			}
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, l := range all[:min(n, len(all))] {
		fmt.Fprintf(w, "%8.2f s  %-12s %s %s\n", l.seconds, l.run, l.pkg, l.name)
	}
	return nil
}
