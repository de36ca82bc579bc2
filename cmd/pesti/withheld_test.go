package main

import (
	"strings"
	"testing"

	"pesti/exec/cpu/isa"
)

// TestWithheld checks that an instruction set which the system withholds is reported, unless the
// cap excludes it.
func TestWithheld(t *testing.T) {
	sets := []isa.Set{{Name: "avx512vnni", Has: true}, {Name: "amx", Why: "lacks the system's permission for AMX", Withheld: true}}
	for most, told := range map[string]bool{"": true, "amx": true, "avx2": false} {
		text := withheld(sets, most, "avx512vnni")
		if (text != "") != told {
			t.Errorf("up to %q: %q", most, text)
		}
		for _, words := range []string{"has amx", "lacks the system's permission", "with avx512vnni"} {
			if told && !strings.Contains(text, words) {
				t.Errorf("%q does not contain %q", text, words)
			}
		}
	}
	if text := withheld(sets[:1], "", "avx512vnni"); text != "" {
		t.Errorf("nothing is withheld, and %q is told", text)
	}
}
