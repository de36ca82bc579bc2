package main

import (
	"slices"
	"testing"
)

func TestOutput(t *testing.T) {
	for _, c := range []struct {
		serial, text string
		status       int
		complete     bool
	}{
		{"", "", 0, false},
		{"[ 0.1] Linux\r\nemulator: beg", "", 0, false},
		{"[ 0.1] Linux\r\nemulator: begin\r\n", "", 0, false},
		{"noise\r\nemulator: begin\r\none\r\ntw", "one\ntw", 0, false},
		{"emulator: begin\r\none\r\n\r\nemulator: end ", "one\n", 0, false},
		{"emulator: begin\r\none\r\n\r\nemulator: end 1", "one\n", 0, false}, // may be the start of 12
		{"emulator: begin\r\none\r\n\r\nemulator: end 12\r\n", "one\n", 12, true},
		{"emulator: begin\r\n\r\nemulator: end 0\r\n[ 9.9] more", "", 0, true},
	} {
		text, status, complete := output([]byte(c.serial))
		if string(text) != c.text || complete != c.complete || complete && status != c.status {
			t.Errorf("%q: %q, %d, %v, expected %q, %d, %v", c.serial, text, status, complete, c.text, c.status, c.complete)
		}
	}
}

// TestArchive checks an entry against the description of the format: widths of fields, and padding.
func TestArchive(t *testing.T) {
	var a archive
	a.file("ab", []byte("hello"))
	const want = "070701" + "00000000" + "000081ed" + "00000000" + "00000000" + "00000001" + "00000000" + "00000005" +
		"00000000" + "00000000" + "00000001" + "00000000" + "00000003" + "00000000" + "ab\x00"
	// 110 bytes of header and 3 of name are padded to 116, and 5 of data to 8.
	if got := a.String(); len(got) != 124 || got[:113] != want[:113] || got[116:] != "hello\x00\x00\x00" {
		t.Errorf("%d bytes %q, expected 124 that begin %q", len(got), got, want[:113])
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"PATH=/bin", "PESTI_ISA=avx2"})
	if slices.Contains(got, "PATH=/bin") || !slices.Contains(got, "PESTI_ISA=avx2") {
		t.Errorf("the environment is %q, expected PESTI_ISA of the host's", got)
	}
}
