package main

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/testenv"
	"pesti/gguf"
	"pesti/gguf/quant"
)

// published has the sizes of published files of the same shapes, in bytes: Meta-Llama-3-8B-Instruct and
// Llama-3.2-3B-Instruct in both types, and Qwen2.5-1.5B-Instruct, from the repositories of bartowski on
// huggingface.co.
var published = map[string]int64{
	"llama-8b-q4_k_m":   4920734272,
	"llama-3b-q4_k_m":   2019377696,
	"llama-3b-q8_0":     3421899296,
	"qwen2-1.5b-q4_k_m": 986048768,
}

func openVocab(t *testing.T, s *shape) *gguf.File {
	t.Helper()
	f, err := gguf.Open(filepath.Join(testenv.Model(t, "vocab"), s.vocabFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestPublishedSizes checks shapes and types by the size of published files. These have some metadata
// more, such as templates.
func TestPublishedSizes(t *testing.T) {
	for i := range shapes {
		s := &shapes[i]
		head, err := s.header(openVocab(t, s))
		if err != nil {
			t.Fatal(err)
		}
		size := head
		for _, x := range s.tensors() {
			size += quant.RowBytes(x.typ, elems(&x))
		}
		t.Logf("%s: %d bytes, %d fewer than published", s.name, size, published[s.name]-size)
		if d := published[s.name] - size; d < 0 || d > 64<<10 {
			t.Errorf("%s has %d bytes, the published file %d", s.name, size, published[s.name])
		}
	}
}

// header returns the size of a file with the metadata alone.
func (s *shape) header(vocab *gguf.File) (int64, error) {
	w := gguf.NewWriter()
	var out bytes.Buffer
	if err := s.metadata(w, vocab); err != nil {
		return 0, err
	}
	err := w.Write(&out)
	return int64(out.Len()), err
}

// TestSameBytes checks that two writes of a model give the same bytes.
func TestSameBytes(t *testing.T) {
	chosen, err := choose([]string{"qwen2-1.5b-q4_k_m"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	vocab := openVocab(t, &chosen[0])
	var sums [2][]byte
	for i := range sums {
		w, err := chosen[0].writer(vocab)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		if err := w.Write(h); err != nil {
			t.Fatal(err)
		}
		sums[i] = h.Sum(nil)
	}
	if !bytes.Equal(sums[0], sums[1]) {
		t.Error("the second write gives other bytes")
	}
}

// TestValues checks mean and standard deviation of a matrix of each type, and that its blocks differ.
func TestValues(t *testing.T) {
	g := &generator{pools: map[poolKey][]byte{}}
	for _, typ := range []quant.Type{quant.Q4_K, quant.Q6_K, quant.Q8_0} {
		x := &tensor{name: "m", typ: typ, dims: []int64{1024, 256}, spread: 1.0 / 32}
		var out bytes.Buffer
		if err := g.write(&out, x); err != nil {
			t.Fatal(err)
		}
		info, _ := quant.Lookup(typ)
		values := make([]float32, elems(x))
		info.Dequantize(values, out.Bytes())
		var sum, squares float64
		for _, v := range values {
			sum, squares = sum+float64(v), squares+float64(v)*float64(v)
		}
		n := float64(len(values))
		mean, deviation := sum/n, math.Sqrt(squares/n)
		if math.Abs(mean) > x.spread/50 || math.Abs(deviation/x.spread-1) > 0.05 {
			t.Errorf("%s: mean %g, standard deviation %g, expected 0 and %g", typ, mean, deviation, x.spread)
		}
		different := map[string]bool{}
		for block := range slices.Chunk(out.Bytes(), out.Len()/1024) {
			different[string(block)] = true
		}
		if len(different) < 600 { // 1024 draws from 1024: 647 on average
			t.Errorf("%s: %d of 1024 units differ", typ, len(different))
		}
	}
}

// TestRopeFactors checks the scaling of Llama 3.2: short wavelengths stay, long ones are divided.
func TestRopeFactors(t *testing.T) {
	f := llama3B.rope.factors(500000, 128)
	if len(f) != 64 || f[0] != 1 || f[63] != 32 || !slices.IsSorted(f) {
		t.Errorf("the factors are %v", f)
	}
}

func TestErrors(t *testing.T) {
	t.Setenv("PESTI_MODELS", t.TempDir())
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "found no NAME, expected all or some of llama-8b-q4_k_m"},
		{[]string{"llama-9b"}, `found the name "llama-9b"`},
		{[]string{"-layers", "33", "llama-8b-q4_k_m"}, "-layers is 33, expected 1 to 32"},
		{[]string{"-layers", "1", "llama-8b-q4_k_m"}, "run make models"},
	} {
		err := run(c.args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one line with %q", c.args, err, c.want)
		}
	}
}
