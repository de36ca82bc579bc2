package pesti_test

import (
	"testing"

	"pesti"
	"pesti/conformance/tiny"
)

// TestStopAtControlToken generates a control token, which adds no text, and stops at its name.
func TestStopAtControlToken(t *testing.T) {
	const id = 256 // <|endoftext|>
	stopped := 0
	for _, sign := range []float32{1, -1} { // with one of them the token is the most likely
		f := tiny.Mapped(t, tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) {
			w := m.Tensor("output.weight")
			for i := range w.Data {
				if i/64 != id {
					w.Data[i] = 0
				} else {
					w.Data[i] *= sign
				}
			}
		}})
		for _, stop := range []string{"<|endoftext|>", "<|other|>"} {
			m, err := pesti.Open(f.Path, pesti.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			first, last := int32(-1), pesti.Piece{}
			for piece, err := range m.Generate(t.Context(), "a", pesti.Params{MaxTokens: 3, IgnoreEOG: true, Stop: []string{stop}}) {
				if err != nil {
					t.Fatal(err)
				}
				if first < 0 {
					first = piece.ID
				}
				last = piece
			}
			want := pesti.StopLength
			if first == id && stop == "<|endoftext|>" {
				want = pesti.StopText
				stopped++
			}
			if r := last.Result; r == nil || r.Stop != want || want == pesti.StopText && r.Tokens != 1 {
				t.Errorf("stop %q, first token %d: %+v, want %s", stop, first, r, want)
			}
		}
	}
	if stopped != 1 {
		t.Errorf("%d generations stopped at the token, want 1", stopped)
	}
}
