package main

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestEncode assembles the text in each instruction's comment with the GNU assembler and compares the encodings.
func TestEncode(t *testing.T) {
	var p program
	registers := []v{0, 1, 15, 16, 30, 31}
	for _, d := range registers {
		p.widen(d, false)
		p.widen(d, true)
		for _, n := range registers {
			p.scvtf(d, n)
			p.fcvtl(d, n)
			for _, m := range registers {
				p.fmul(d, n, m)
				p.fmulFirst(d, n, m)
				p.fadd(d, n, m)
				p.fsub(d, n, m)
				for i := range 4 {
					p.sdot(d, n, m, i)
				}
			}
		}
	}
	as, err := exec.LookPath("aarch64-linux-gnu-as")
	if err != nil {
		t.Skip("there is no GNU assembler for arm64: Debian's binutils-aarch64-linux-gnu")
	}
	lines := strings.Split(strings.TrimSpace(p.code.String()), "\n")
	source := ".arch armv8.2-a+dotprod\n"
	for _, l := range lines {
		_, text, _ := strings.Cut(l, "// ")
		source += text + "\n"
	}
	dir := t.TempDir()
	file, object, code := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o"), filepath.Join(dir, "a.bin")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range [][]string{{as, "-o", object, file}, {"aarch64-linux-gnu-objcopy", "-O", "binary", "-j", ".text", object, code}} {
		if message, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", cmd[0], err, message)
		}
	}
	want, err := os.ReadFile(code)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 4*len(lines) {
		t.Fatalf("%d instructions are %d bytes", len(lines), len(want))
	}
	for i, l := range lines {
		hex, text, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(l), "WORD $"), " // ")
		got, err := strconv.ParseUint(hex, 0, 32)
		if w := binary.LittleEndian.Uint32(want[4*i:]); err != nil || uint32(got) != w {
			t.Errorf("%s is encoded as %s, %v, expected %#x", text, hex, err, w)
		}
	}
}
