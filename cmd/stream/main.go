// Command stream continues a text with package pesti, and imports nothing else of this module.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"pesti"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("expected MODEL PROMPT")
	}
	model, err := pesti.Open(os.Args[1], pesti.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	for piece, err := range model.Generate(context.Background(), os.Args[2], pesti.Params{MaxTokens: 128}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
	}
}
