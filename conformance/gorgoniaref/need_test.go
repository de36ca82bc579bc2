package gorgoniaref

import (
	"testing"

	"pesti/conformance/tiny"
)

// The memory that a model needs follows from its sizes. 8 is the number of bytes of a float64.
func TestNeed(t *testing.T) {
	f := tiny.File(t, tiny.Config{Arch: "llama", Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 16, Embd: 64, FF: 96, Vocab: 5000})
	names := []string{"blk.0.out", "blk.1.out", "blk.2.out", "logits"}
	for _, tokens := range []int64{1, 7, 1000} {
		got, err := NeedOf(unfused(t, f, int(tokens)), names)
		if err != nil {
			t.Fatal(err)
		}
		block := int64(64*64*2 + 32*64*2 + 3*64*96)
		want := Need{Attention: 10 * 8 * 4 * tokens * tokens, Logits: 2 * 8 * 5000 * tokens, Weights: 8 * max(block, 5000*64)}
		if got != want {
			t.Errorf("%d tokens: %+v, want %+v", tokens, got, want)
		}
	}
	// If only the logits are wanted, all blocks are one part.
	all, err := NeedOf(unfused(t, f, 7), names[3:])
	if one, _ := NeedOf(unfused(t, f, 7), names); err != nil || all.Attention != 3*one.Attention {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := NeedOf(unfused(t, f, 7), []string{"blk.9.out"}); err == nil {
		t.Error("no error for a value that there is none of")
	}
}
