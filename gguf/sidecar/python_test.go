package sidecar

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/testenv"
	"pesti/conformance/tiny"
	"pesti/gguf/quant"
)

// TestAgainstPython lets other programs read the written file and round the same weights. Each
// scale and each code must have the same bytes.
func TestAgainstPython(t *testing.T) {
	for _, c := range []tiny.Config{
		{Tied: true, Embd: 256, FF: 512, Types: []quant.Type{quant.Q4_K, quant.Q6_K, quant.Q5_0}},
		{Arch: "gemma3", Types: []quant.Type{quant.F32, quant.F16, quant.Q8_0}, Edit: func(m *tiny.Model) {
			w := m.Tensor("blk.0.attn_q.weight")
			clear(w.Data[:w.Dims[0]])
			for i := range w.Data[w.Dims[0]:] { // all magnitudes, including ties
				w.Data[int(w.Dims[0])+i] = float32(i%977) / 64
			}
		}},
	} {
		data, err := tiny.GGUF(c)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		modelPath, path := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "w.safetensors")
		m := model(t, c)
		sidecar := written(t, m)
		for name, b := range map[string][]byte{modelPath: data, path: sidecar} {
			if err := os.WriteFile(name, b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		out, err := testenv.Python(t, "testdata/check.py", modelPath, path).Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var want []string
		for _, w := range Matrices(m) {
			want = append(want, w.Name)
		}
		if got := strings.Fields(string(out)); !slices.Equal(got, want) {
			t.Errorf("found %q, expected %q", got, want)
		}
		// Check that the comparison detects a difference: change a code of the last matrix.
		sidecar[len(sidecar)-1] ^= 1
		if err := os.WriteFile(path, sidecar, 0o666); err != nil {
			t.Fatal(err)
		}
		if out, err := testenv.Python(t, "testdata/check.py", modelPath, path).Output(); err == nil {
			t.Errorf("a changed code passes:\n%s", out)
		}
	}
}
