package tokenizer

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
)

func words(rules []rule, text string) []string {
	var all []string
	split(&poll{ctx: context.Background()}, rules, []byte(text), func(w []byte) { all = append(all, string(w)) })
	return all
}

// TestSplittersAgainstExpressions compares the scanners with the published
// regular expressions; testdata/splits.py makes the expected words.
func TestSplittersAgainstExpressions(t *testing.T) {
	data, err := os.ReadFile("testdata/splits.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Pre, Text string
		Words     []string
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 700 {
		t.Fatalf("%d cases; want at least 700", len(cases))
	}
	for _, c := range cases {
		s, ok := findSplitter(c.Pre)
		if !ok {
			t.Fatalf("no splitter %q", c.Pre)
		}
		if got := words(s.rules, c.Text); !slices.Equal(got, c.Words) {
			t.Errorf("%s %q:\n got %q\nwant %q", c.Pre, c.Text, got, c.Words)
		}
	}
}
