package kernels

import (
	"bytes"
	"os"
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
		{11070, 7, 5, "", "the driver supports CUDA 11.7, expected 11.8"},
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
		{"sm_80", 12090, 7, 5, "the GPU has compute capability 7.5, expected 8.0 or later"},
		{"sm_89", 12000, 8, 9, "the driver supports CUDA 12.0, expected 12.1 or later"},
		{"sm_70", 12090, 8, 9, "no kernels"},
	} {
		s, err := Lookup(c.isa, c.driver, c.major, c.minor)
		if (err == nil) != (c.err == "") || err == nil && s.ISA != c.isa || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %q, %v", c, s.ISA, err)
		}
	}
}

// TestModules checks that each kernel is found in the latest module that the set allows, and that the target of each
// module is the one in its name.
func TestModules(t *testing.T) {
	names, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range Sets() {
		want := map[string]string{} // by kernel, of files in order of name: later targets come later
		for _, f := range names {
			_, target, _ := strings.Cut(strings.TrimSuffix(f.Name(), ".ptx"), ".")
			if target > set.ISA {
				continue
			}
			ptx, err := files.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(ptx, []byte(".target "+target+"\n")) {
				t.Errorf("%s is for another target", f.Name())
			}
			for _, part := range strings.Split(string(ptx), ".entry ")[1:] {
				kernel, _, _ := strings.Cut(part, "(")
				want[kernel] = f.Name()
			}
		}
		for kernel, file := range want {
			if module, _, err := set.Module(kernel); err != nil || module != file {
				t.Errorf("%s: kernel %s is in %s, found in %q, %v", set.ISA, kernel, file, module, err)
			}
		}
		if _, _, err := set.Module("select"); err == nil {
			t.Error("part of a name found a kernel")
		}
	}
}

// TestTable checks that the table of registers has exactly one row for each kernel.
func TestTable(t *testing.T) {
	table, err := os.ReadFile("kernels.md")
	if err != nil {
		t.Fatal(err)
	}
	names, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, f := range names {
		ptx, err := files.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		module, _, _ := strings.Cut(f.Name(), ".")
		for _, part := range strings.Split(string(ptx), ".entry ")[1:] {
			kernel, _, _ := strings.Cut(part, "(")
			want["| "+module+" | "+kernel+" |"] = true
		}
	}
	rows := 0
	for line := range strings.Lines(string(table)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| module") {
			continue
		}
		rows++
		columns := strings.Split(line, "|")
		if !want["|"+columns[1]+"|"+columns[2]+"|"] {
			t.Errorf("%s is of no kernel", strings.TrimSpace(line))
		}
	}
	if rows != len(want) {
		t.Errorf("%d rows for %d kernels: run build.py --ptxas", rows, len(want))
	}
}
