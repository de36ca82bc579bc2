package kernels

import (
	"bytes"
	"strings"
	"testing"
)

func TestFor(t *testing.T) {
	for _, c := range []struct {
		driver, major, minor int
		isa, err             string
	}{
		{12090, 9, 0, "sm_89", ""},
		{12000, 9, 0, "sm_80", ""},
		{13000, 12, 1, "sm_89", ""},
		{12090, 8, 6, "sm_80", ""},
		{11080, 7, 5, "sm_75", ""},
		{11070, 7, 5, "", "the driver is for CUDA 11.7, expected 11.8"},
		{12090, 7, 0, "", "the GPU has compute capability 7.0, expected 7.5"},
		{12090, 6, 9, "", "the GPU has compute capability 6.9, expected 7.5"},
	} {
		s, err := For(c.driver, c.major, c.minor)
		if s.ISA != c.isa || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %q, %v", c, s.ISA, err)
		}
	}
	for _, c := range []struct {
		isa                  string
		driver, major, minor int
		err                  string
	}{
		{"sm_80", 12090, 9, 0, ""},
		{"sm_80", 12090, 7, 5, "compute capability 8.0"},
		{"sm_89", 12000, 8, 9, "CUDA 12.1"},
		{"sm_70", 12090, 8, 9, "no kernels"},
	} {
		s, err := Lookup(c.isa, c.driver, c.major, c.minor)
		if (err == nil) != (c.err == "") || err == nil && s.ISA != c.isa || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %q, %v", c, s.ISA, err)
		}
	}
}

// TestModules sees that each target has the same kernels, and that modules are for their target.
func TestModules(t *testing.T) {
	var first []string
	for _, s := range Sets() {
		names, _ := files.ReadDir(".")
		var kernels []string
		for _, f := range names {
			if !strings.HasSuffix(f.Name(), "."+s.ISA+".ptx") {
				continue
			}
			ptx, _ := files.ReadFile(f.Name())
			if !bytes.Contains(ptx, []byte(".target "+s.ISA+"\n")) {
				t.Errorf("%s is for another target", f.Name())
			}
			for _, part := range strings.Split(string(ptx), ".entry ")[1:] {
				name, _, _ := strings.Cut(part, "(")
				kernels = append(kernels, name)
				if module, _, err := s.Module(name); err != nil || module != f.Name() {
					t.Errorf("kernel %s is in %s, found in %q, %v", name, f.Name(), module, err)
				}
			}
		}
		if first == nil {
			first = kernels
		}
		if len(kernels) == 0 || strings.Join(kernels, " ") != strings.Join(first, " ") {
			t.Errorf("%s has %v, %s %v", s.ISA, kernels, sets[0].ISA, first)
		}
	}
	if _, _, err := sets[0].Module("select"); err == nil {
		t.Error("part of a name found a kernel")
	}
}
