package pass

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestBalance compares the cuts of a list with all possible cuts: the largest part is minimal, and
// no part is empty.
func TestBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 9), 1, 9).Draw(t, "sizes")
		n := rapid.IntRange(1, len(sizes)).Draw(t, "parts")
		largest := func(ends []int) int64 {
			most, from := int64(0), 0
			for _, end := range ends {
				if end <= from {
					t.Fatalf("%v in %d parts: ends %v", sizes, n, ends)
				}
				sum := int64(0)
				for _, s := range sizes[from:end] {
					sum += s
				}
				most, from = max(most, sum), end
			}
			return most
		}
		best := int64(-1)
		var try func(ends []int)
		try = func(ends []int) {
			last := 0
			if len(ends) > 0 {
				last = ends[len(ends)-1]
			}
			if len(ends) == n-1 {
				if last < len(sizes) {
					if m := largest(append(slices.Clone(ends), len(sizes))); best < 0 || m < best {
						best = m
					}
				}
				return
			}
			for end := last + 1; end < len(sizes); end++ {
				try(append(slices.Clone(ends), end))
			}
		}
		try(nil)
		ends := balance(sizes, n)
		if len(ends) != n || ends[n-1] != len(sizes) {
			t.Fatalf("%v in %d parts: ends %v", sizes, n, ends)
		}
		squares := func(ends []int) (sum int64) {
			from := 0
			for _, end := range ends {
				part := int64(0)
				for _, s := range sizes[from:end] {
					part += s
				}
				sum, from = sum+part*part, end
			}
			return sum
		}
		for k := range n - 1 { // moving a cut by one element improves neither criterion
			for _, by := range []int{-1, 1} {
				other := slices.Clone(ends)
				other[k] += by
				if first := slices.Insert(slices.Clone(other), 0, 0); !slices.IsSorted(first) || len(slices.Compact(first)) != n+1 {
					continue
				}
				if largest(other) <= best && squares(other) < squares(ends) {
					t.Fatalf("%v in %d parts: ends %v, of which %v are more even", sizes, n, ends, other)
				}
			}
		}
		if got := largest(ends); got != best {
			t.Fatalf("%v in %d parts: ends %v, of which the largest is %d, expected %d", sizes, n, ends, got, best)
		}
	})
}

// TestShare checks that the embedding and the output are on the first and the last device, or on
// the host, and that their bytes count there.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		bytes           []int64
		devices, onHost int
		want            []int // nil if an error is expected
	}{
		{[]int64{0, 1, 1, 1, 1, 0}, 1, -1, []int{0, 0, 0, 0, 0, 0}},
		{[]int64{0, 1, 1, 1, 1, 0}, 2, -1, []int{0, 0, 0, 1, 1, 1}},
		{[]int64{3, 1, 1, 1, 1, 0}, 2, -1, []int{0, 0, 1, 1, 1, 1}},
		{[]int64{0, 1, 1, 1, 1, 3}, 2, -1, []int{0, 0, 0, 0, 1, 1}},
		{[]int64{9, 1, 1, 1, 1, 9}, 4, -1, []int{0, 0, 1, 2, 3, 3}},
		{[]int64{9, 1, 1, 1, 1, 1, 1, 9}, 4, -1, []int{0, 0, 1, 1, 2, 2, 3, 3}},
		{[]int64{9, 1, 1, 1, 1, 9}, 5, -1, nil},
		{[]int64{9, 1, 1, 1, 1, 9}, 2, 3, []int{0, 0, 0, 0, 1, 0}},
		{[]int64{9, 1, 1, 1, 1, 9}, 2, 0, []int{0, 1, 1, 1, 1, 0}},
		{[]int64{9, 1, 1, 1, 1, 9}, 3, 2, []int{0, 0, 0, 1, 2, 0}},
		{[]int64{9, 1, 1, 1, 1, 9}, 3, 3, nil},
		{[]int64{9, 1, 1, 1, 1, 9}, 2, 4, nil},
		{[]int64{9, 1, 1, 1, 1, 9}, 2, 5, nil},
	} {
		got, err := share(c.bytes, c.devices, c.onHost)
		if !slices.Equal(got, c.want) || (err != nil) != (c.want == nil) {
			t.Errorf("%v on %d devices, %d on the host: %v, error %v, expected %v", c.bytes, c.devices, c.onHost, got, err, c.want)
		}
	}
}
