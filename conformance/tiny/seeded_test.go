package tiny

import (
	"math"
	"strings"
	"testing"
)

// TestSeededValues: values are inside their range, on average in its middle, and depend on seed, name and position.
func TestSeededValues(t *testing.T) {
	const n = 10000
	a := SeededValues("model", "tensor", n, 1, 0.5)
	sum, squares := 0.0, 0.0
	for i, x := range a {
		if !(x >= 0.5 && x <= 1.5) {
			t.Fatalf("value %d is %v, want 0.5 to 1.5", i, x)
		}
		sum += float64(x) - 1
		squares += (float64(x) - 1) * (float64(x) - 1)
	}
	// The standard error of the mean is 0.003, of the variance 0.0008.
	if mean, variance := sum/n, squares/n; math.Abs(mean) > 0.015 || math.Abs(variance-1.0/12) > 0.004 {
		t.Errorf("mean %.4f and variance %.4f, want 0 and %.4f", mean, variance, 1.0/12)
	}
	for _, other := range [][]float32{SeededValues("model", "tensos", n, 1, 0.5), SeededValues("modem", "tensor", n, 1, 0.5), a[1:]} {
		equal := 0
		for i, x := range other {
			if x == a[i] {
				equal++
			}
		}
		if equal > 10 {
			t.Errorf("%d of %d values are equal", equal, n)
		}
	}
	if got := SeededValues("model", "tensor", 3, 1, 0.5); got[0] != a[0] || got[2] != a[2] {
		t.Error("values depend on their number")
	}
	if len(SeededValues("", "", 0, 0, 0)) != 0 {
		t.Error("values of an empty tensor")
	}
}

// TestParseSeeded: what a description may not contain.
func TestParseSeeded(t *testing.T) {
	const tensors = `"tensors": {"token_embd.weight": [258, 4]}`
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", `{"layer": 1}`, "unknown field"},
		{"values of no tensor", `{` + tensors + `, "values": {"x": [0, 1]}}`, "which is no tensor"},
		{"two descriptions of a tensor", `{"layers": 1, "tensors": {"blk.0.a": [1], "blk.*.a": [1]}}`, "described twice"},
		{"no embeddings", `{"tensors": {"a": [1]}}`, "no tensor token_embd.weight"},
		{"a key of objects", `{` + tensors + `, "keys": {"k": {}}}`, "key k: {}, expected a string"},
		{"a negative key", `{` + tensors + `, "keys": {"k": -1}}`, "key k: -1, expected a string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ParseSeeded("m", []byte(c.text))
			if err == nil {
				_, err = s.GGUF()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
