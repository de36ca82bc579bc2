package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	line := func(action, test, output string) string {
		return `{"Action":"` + action + `","Package":"p","Test":"` + test + `","Output":"` + output + `"}` + "\n"
	}
	skip := func(test, why string) string {
		return line("run", test, "") + line("output", test, `    x_test.go:7: `+why+`\n`) + line("output", test, "--- SKIP: "+test+`\n`) + line("skip", test, "")
	}
	good := line("start", "", "") + line("output", "A", `quiet\n`) + line("pass", "A", "") + skip("B", "model m is missing") + skip("C", "model m is missing") +
		skip("D", "a: b") + line("skip", "E", "") + skip("F", "runs elsewhere, if at all") + line("output", "", `ok  \tp\t1s\n`) + line("pass", "", "")
	const goodReport = "ok  \tp\t1s\n\nSkipped tests:\n\n  model m is missing\n    p B\n    p C\n\n  a: b\n    p D\n\n  no reason given\n    p E\n\n1 tests are not in this run: runs elsewhere\n\n1 passed, 0 failed, 4 skipped\n"
	for name, c := range map[string]struct {
		in, out string
		failed  int
		err     string
	}{
		"good":          {in: good, out: goodReport},
		"fails":         {in: line("output", "A", `loud\n`) + line("fail", "A", "") + line("output", "", `FAIL\tp\t1s\n`) + line("fail", "", ""), out: "loud\nFAIL\tp\t1s\n\n0 passed, 1 failed, 0 skipped\n", failed: 1},
		"package":       {in: line("output", "", `panic\n`) + line("fail", "", ""), out: "panic\n\n0 passed, 1 failed, 0 skipped\n", failed: 1},
		"build":         {in: `{"Action":"build-output","Output":"x.go:1: bad\n"}{"Action":"build-fail"}`, out: "x.go:1: bad\n\n0 passed, 1 failed, 0 skipped\n", failed: 1},
		"no tests":      {in: line("start", "", "") + line("skip", "", ""), out: "\n0 passed, 0 failed, 0 skipped\n"},
		"nothing":       {err: "event 0"},
		"cut":           {in: good[:len(good)/2], err: "unexpected EOF"},
		"cut at a line": {in: strings.TrimSuffix(good, line("pass", "", "")), out: "ok  \tp\t1s\n", err: "ends before 1 packages do"},
	} {
		var out strings.Builder
		r, err := report(strings.NewReader(c.in), &out, "runs elsewhere")
		if r.failed != c.failed || out.String() != c.out {
			t.Errorf("%s: %d failed, reports %q, expected %d and %q", name, r.failed, out.String(), c.failed, c.out)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v, expected %q", name, err, c.err)
		}
	}
}

func TestTimes(t *testing.T) {
	event := func(action, test, seconds string) string {
		return `{"Action":"` + action + `","Package":"p","Test":"` + test + `","Elapsed":` + seconds + `}` + "\n"
	}
	in := event("run", "A", "0") + event("run", "A/x", "0") + event("run", "A/y z", "0") + event("pass", "A/x", "2.5") + event("fail", "A/y z", "1") + event("fail", "A", "3.5") + event("pass", "B", "3")
	r, err := report(strings.NewReader(in), new(strings.Builder), "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "times", "race.txt")
	if err := writeTimes(path, r.times); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := slowest([]string{path}, 2, &out); err != nil {
		t.Fatal(err)
	}
	if want := "    3.00 s  race         p B\n    2.50 s  race         p A/x\n"; out.String() != want {
		t.Errorf("the slowest are %q, expected %q", out.String(), want)
	}
	if err := os.WriteFile(path, []byte("soon p A\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := slowest([]string{path}, 2, &out); err == nil {
		t.Error("a file without times is no error")
	}
}
