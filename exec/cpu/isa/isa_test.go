package isa

import (
	"slices"
	"strings"
	"testing"

	"pesti/conformance/testenv"
)

func TestDetect(t *testing.T) {
	testenv.Inputs(t)
	sets := Detect()
	if sets[0].Name != "portable" || !sets[0].Has {
		t.Errorf("first is %+v, expected portable, which every machine has", sets[0])
	}
	for _, s := range sets {
		if s.Has != (s.Why == "") {
			t.Errorf("%s: has %v, why not %q", s.Name, s.Has, s.Why)
		}
	}
}

func TestBest(t *testing.T) {
	for _, most := range []string{"", "portable", "neondot", "avx2", "avx512vnni", "amx"} {
		best, err := Best(most)
		if err != nil {
			t.Errorf("up to %q: %v", most, err)
			continue
		}
		names, err := UpTo(best)
		if err != nil || !slices.Contains(names, best) || !slices.Contains(names, "portable") {
			t.Errorf("up to %q: best is %s, for which code may use %v, %v", most, best, names, err)
		}
		if most == "portable" && best != most {
			t.Errorf("up to portable: best is %s", best)
		}
	}
	if _, err := Best("sse9"); err == nil || !strings.Contains(err.Error(), `"sse9", expected one of portable, `) {
		t.Errorf("sse9: error %v", err)
	}
}

// TestMissing checks that a set which the machine does not support is refused with the reason.
func TestMissing(t *testing.T) {
	refused := 0
	for _, s := range Detect() {
		if s.Has {
			continue
		}
		refused++
		if _, err := UpTo(s.Name); err == nil || !strings.Contains(err.Error(), s.Why) {
			t.Errorf("%s: error %v, expected one with %q", s.Name, err, s.Why)
		}
		if !strings.Contains(Explain(), s.Why) {
			t.Errorf("%s: %q is not explained", s.Name, s.Why)
		}
	}
	if refused == 0 {
		t.Error("a machine has the sets of both amd64 and arm64")
	}
}
