package numfmt

import "testing"

// TestQ8_0Rounding compares one block with numbers worked out by hand.
func TestQ8_0Rounding(t *testing.T) {
	x := make([]float32, BlockLen)
	copy(x, []float32{127, -127, 0.5, -0.5, 1.5, 0.49, -2.51})
	block := make([]byte, Q8_0Bytes)
	QuantizeQ8_0(block, x)
	if block[0] != 0 || block[1] != 0x3c { // 1 in float16
		t.Errorf("scale % x, expected 00 3c", block[:2])
	}
	for i, want := range []int8{127, -127, 1, -1, 2, 0, -3, 0} {
		if got := int8(block[2+i]); got != want {
			t.Errorf("%v became %d, expected %d", x[i], got, want)
		}
	}
}
