package tokenizer_test

import (
	"context"
	"fmt"
	"log"

	"pesti/frontend/tokenizer"
	"pesti/gguf"
)

// A vocabulary of three bytes and the results of their merges.
func ExampleNew() {
	words, err := tokenizer.New("example", tokenizer.Config{
		Model: "gpt2", Pre: "gpt-2", HasPre: true,
		Tokens: []string{"a", "b", "c", "ab", "abc"},
		Merges: []string{"a b", "ab c"},
		BOS:    -1, EOS: -1, EOT: -1, EOM: -1, UNK: -1,
	})
	if err != nil {
		log.Fatal(err)
	}
	ids, err := words.Encode(context.Background(), []byte("abcab"), tokenizer.Options{})
	if err != nil {
		log.Fatal(err)
	}
	text, err := words.Decode(ids)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids, string(text))
	// Output:
	// [4 3] abcab
}

func ExampleFromGGUF() {
	f, err := gguf.Open("../../conformance/demo/demo.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	words, err := tokenizer.FromGGUF(f)
	if err != nil {
		log.Fatal(err)
	}
	ids, err := words.Encode(context.Background(), []byte("Once upon a time"), tokenizer.Options{BOS: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range ids {
		fmt.Printf("%d %q\n", id, words.Piece(id))
	}
	// Output:
	// 479 "Once"
	// 480 " upon"
	// 258 " a"
	// 405 " time"
}

// If a rune is split over tokens, its bytes are held until it is complete.
func ExampleStream() {
	var s tokenizer.Stream
	for _, piece := range []string{"na", "\xc3", "\xaf", "ve"} {
		fmt.Printf("%q\n", s.Write([]byte(piece)))
	}
	// Output:
	// "na"
	// ""
	// "ï"
	// "ve"
}
