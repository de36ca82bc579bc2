package main

import (
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
	good := line("output", "A", `quiet\n`) + line("pass", "A", "") + skip("B", "model m is missing") + skip("C", "model m is missing") +
		skip("D", "a: b") + line("skip", "E", "") + line("output", "", `ok  \tp\t1s\n`) + line("pass", "", "")
	const told = "ok  \tp\t1s\n\n1 tests ran, 4 were left out:\n\n  model m is missing\n    p B\n    p C\n\n  a: b\n    p D\n\n  no reason given\n    p E\n"
	for name, c := range map[string]struct {
		in, out string
		failed  bool
		err     string
	}{
		"good":    {in: good, out: told},
		"fails":   {in: line("output", "A", `loud\n`) + line("fail", "A", "") + line("output", "", `FAIL\tp\t1s\n`), out: "loud\nFAIL\tp\t1s\n\n0 tests ran, 0 were left out:\n", failed: true},
		"build":   {in: `{"Action":"build-output","Output":"x.go:1: bad\n"}{"Action":"build-fail"}`, out: "x.go:1: bad\n\n0 tests ran, 0 were left out:\n", failed: true},
		"nothing": {err: "event 0"},
		"cut":     {in: good[:len(good)/2], out: "", err: "unexpected EOF"},
	} {
		var out strings.Builder
		failed, err := report(strings.NewReader(c.in), &out)
		if failed != c.failed || out.String() != c.out {
			t.Errorf("%s: failed %t, tells %q, expected %t and %q", name, failed, out.String(), c.failed, c.out)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v, expected %q", name, err, c.err)
		}
	}
}
