package main

import (
	"context"
	"io"
	"math"
	"runtime"
	"testing"

	"pesti/exec/sample"
)

// Generating a token allocates nothing, from the forward pass to the text, with and without drafts.
func TestGenerateAllocatesNothing(t *testing.T) {
	a := &app{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}
	s, err := a.open("demo", "", newCompileFlags("fast"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.compile(); err != nil {
		t.Fatal(err)
	}
	tok, err := s.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	model, err := s.start()
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	prompt, err := tok.EncodePrompt(t.Context(), []byte(story))
	if err != nil {
		t.Fatal(err)
	}

	params := sample.Default()
	params.RepeatPenalty, params.Seed = 1.1, 5
	o := &runOptions{params: params, stops: []string{"a text that does not come", "e\x00"}, ignoreEOS: true, drafts: &drafting{}}
	// count returns the allocations of a whole generation. It takes the fewest of several runs, because the runtime
	// makes some allocations of its own.
	count := func(tokens int64) uint64 {
		fewest := uint64(math.MaxUint64)
		for range 5 {
			o.tokens.n = tokens
			session, err := model.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := a.generate(context.Background(), session, prompt, o)
			runtime.ReadMemStats(&after)
			if err != nil || int64(r.Tokens) != tokens {
				t.Fatalf("%d tokens, error %v", r.Tokens, err)
			}
			fewest = min(fewest, after.Mallocs-before.Mallocs)
			session.Close()
		}
		return fewest
	}
	for _, most := range []int64{0, 7} {
		o.drafts.most.n = most
		few, many := count(20), count(220)
		if many > few+8 { // buffers of text grow once or twice
			t.Errorf("--speculate %d: 20 tokens take %d allocations, 220 take %d, expected as many", most, few, many)
		}
	}
}
