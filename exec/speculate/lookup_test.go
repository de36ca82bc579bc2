package speculate

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		name   string
		prompt []int32
		n      int
		want   []int32
	}{
		{"nothing", nil, 4, nil},
		{"one token", []int32{1}, 4, nil},
		{"no match", []int32{1, 2, 3, 4}, 4, nil},
		{"one equal token is no match", []int32{1, 2, 3, 1}, 4, nil},
		{"a pair", []int32{1, 2, 3, 4, 1, 2}, 2, []int32{3, 4}},
		{"a pair at the very beginning", []int32{1, 2, 1, 2}, 1, []int32{1}},
		{"the last of two pairs", []int32{1, 2, 3, 1, 2, 4, 1, 2}, 1, []int32{4}},
		{"the longer one before the later one", []int32{9, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2}, 1, []int32{3}},
		{"a match that runs into the draft repeats", []int32{1, 2, 3, 1, 2}, 7, []int32{3, 1, 2, 3, 1, 2, 3}},
		{"one token again and again", []int32{5, 5, 5}, 4, []int32{5, 5, 5, 5}},
		{"no draft requested", []int32{1, 2, 3, 1, 2}, 0, nil},
		{"of equal matches the one in the more similar text", []int32{5, 6, 7, 1, 2, 3, 8, 1, 2, 4, 5, 6, 9, 1, 2}, 1, []int32{3}},
		{"a copy with another token at its end", append(numbered(20), append(numbered(15), 99)...), 3, []int32{16, 17, 18}},
		{"a copy that is less like it", append(numbered(20), append(numbered(9)[:8], 50, 51, 52, 53, 54, 55, 56, 99)...), 3, nil},
		{"a match longer than the compared length", []int32{7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 1, []int32{9}},
	} {
		if got := NewLookup(c.prompt, 0).Draft(nil, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%s: after %v it guesses %v, want %v", c.name, c.prompt, got, c.want)
		}
		l := NewLookup(nil, 64)
		accepted := max(len(c.prompt)-1, 0)
		for _, id := range c.prompt[:accepted] {
			l.Accept(id)
		}
		last := c.prompt[accepted:]
		for range 2 { // the last token is in dst, and is not kept
			if got := l.Draft(slices.Clone(last), c.n); !slices.Equal(got, slices.Concat(last, c.want)) {
				t.Errorf("%s: with tokens accepted one by one, the draft is %v with %v in front, want %v", c.name, got, last, c.want)
			}
		}
	}
}

// numbered returns the tokens 0 to n-1.
func numbered(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

// TestLookupTakesTheBestPlace compares Draft with a search that scores every place by itself.
func TestLookupTakesTheBestPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, 3), 0, 60).Draw(t, "ids")
		got := NewLookup(ids, 0).Draft(nil, 1)
		var want []int32
		best := -1
		for i := 1; i < len(ids); i++ {
			match, like := 0, 0
			for n := 1; n <= maxMatch && n <= i; n++ {
				if slices.Equal(ids[i-n:i], ids[len(ids)-n:]) {
					match = n
				}
			}
			for n := 1; n <= window && n <= i; n++ {
				if ids[i-n] == ids[len(ids)-n] {
					like++
				}
			}
			score := 100*match + like
			if match < 2 {
				score = like
			}
			if (match >= 2 || like >= 10) && score >= best {
				best, want = score, ids[i:i+1]
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("after %v it guesses %v, want %v", ids, got, want)
		}
	})
}
