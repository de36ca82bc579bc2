package pesti_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pesti"
	"pesti/conformance/demo"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
)

// A tokenizer of another model is refused, also if it has the same number of tokens.
func TestWrongTokenizer(t *testing.T) {
	f := must(gguf.Parse(pesti.Demo, demo.GGUF()))
	own := must(f.Strs("tokenizer.ggml.tokens"))
	with := func(name string, tokens []string) *tokenizer.Tokenizer {
		w := gguf.NewWriter()
		w.SetAll(f)
		w.SetStrs("tokenizer.ggml.tokens", tokens)
		if len(tokens) != len(own) {
			types := make([]int32, len(tokens))
			for i := range types {
				types[i] = 1
			}
			w.SetInt32s("tokenizer.ggml.token_type", types)
		}
		var b bytes.Buffer
		if err := w.Write(&b); err != nil {
			t.Fatal(err)
		}
		return must(tokenizer.FromGGUF(must(gguf.Parse(name, b.Bytes()))))
	}
	changed := slices.Clone(own)
	changed[len(own)-1] += "x"
	for _, c := range []struct {
		tokenizer *tokenizer.Tokenizer
		want      string
	}{
		{with("large", append(slices.Clone(own), "one more")), fmt.Sprintf("Tokenizer is of large, with %d tokens; expected the %d of demo", len(own)+1, len(own))},
		{with("other", changed), fmt.Sprintf("Tokenizer is of other, where token %d of %d is %q; expected %q as in demo", len(own)-1, len(own), changed[len(own)-1], own[len(own)-1])},
	} {
		var wrong *pesti.OptionError
		m, err := pesti.Open(pesti.Demo, pesti.Options{Tokenizer: c.tokenizer})
		if !errors.As(err, &wrong) || wrong.Field != "Tokenizer" || err.Error() != c.want {
			t.Errorf("error %v, expected %s", err, c.want)
		}
		if err == nil {
			m.Close()
		}
	}
	open(t, pesti.Options{Tokenizer: with("same", own)})
}
