package amx

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mmcloughlin/avo/reg"
)

// TestEncode compares every encoding with that of the GNU assembler.
func TestEncode(t *testing.T) {
	registers := []struct {
		r    reg.GPPhysical
		name string
	}{
		{reg.RAX, "rax"}, {reg.RCX, "rcx"}, {reg.RDX, "rdx"}, {reg.RBX, "rbx"}, {reg.RSI, "rsi"}, {reg.RDI, "rdi"},
		{reg.R8, "r8"}, {reg.R9, "r9"}, {reg.R10, "r10"}, {reg.R11, "r11"}, {reg.R12, "r12"}, {reg.R13, "r13"},
	}
	var text strings.Builder
	var want [][]byte
	add := func(code []byte, format string, args ...any) {
		fmt.Fprintf(&text, format+"\n", args...)
		want = append(want, code)
	}
	add(TILERELEASE(), "tilerelease")
	for _, b := range registers {
		// {disp32} keeps the assembler from choosing a shorter displacement.
		add(LDTILECFG(Mem{Base: b.r, Disp: 64}), "{disp32} ldtilecfg 64(%%%s,%%riz)", b.name)
		for _, i := range registers {
			for _, disp := range []int32{0, 64, -4096} {
				m := Mem{b.r, i.r, disp}
				add(TILELOADD(Tile(len(want)%8), m), "{disp32} tileloadd %d(%%%s,%%%s), %%tmm%d", disp, b.name, i.name, len(want)%8)
				add(TILESTORED(m, Tile(len(want)%8)), "{disp32} tilestored %%tmm%d, %d(%%%s,%%%s)", len(want)%8, disp, b.name, i.name)
			}
		}
	}
	for dst := range Tile(8) {
		add(TILEZERO(dst), "tilezero %%tmm%d", dst)
		for a := range Tile(8) {
			for b := range Tile(8) {
				if dst != a && a != b && b != dst {
					add(TDPBSSD(dst, a, b), "tdpbssd %%tmm%d, %%tmm%d, %%tmm%d", b, a, dst)
					add(TDPBF16PS(dst, a, b), "tdpbf16ps %%tmm%d, %%tmm%d, %%tmm%d", b, a, dst)
				}
				add(VCVTNE2PS2BF16(byte(dst), byte(a), byte(b)), "vcvtne2ps2bf16 %%zmm%d, %%zmm%d, %%zmm%d", b, a, dst)
			}
		}
	}

	as, err := exec.LookPath("as")
	if err != nil {
		t.Skip("there is no GNU assembler")
	}
	dir := t.TempDir()
	source, object, code := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o"), filepath.Join(dir, "a.bin")
	if err := os.WriteFile(source, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range [][]string{{as, "--64", "-mindex-reg", "-o", object, source}, {"objcopy", "-O", "binary", "-j", ".text", object, code}} {
		if message, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", cmd[0], err, message)
		}
	}
	got, err := os.ReadFile(code)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	for i, w := range want {
		if !bytes.HasPrefix(got, w) {
			t.Fatalf("%s: encoded as % x, the assembler has % x", lines[i], w, got[:min(16, len(got))])
		}
		got = got[len(w):]
	}
	if len(got) > 0 {
		t.Errorf("%d bytes are left after the last instruction", len(got))
	}
}
