package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"pesti/frontend/tokenizer"
)

func (a *app) tokenize() *cobra.Command {
	var asIDs, noBOS, noSpecial, detokenize bool
	cmd := a.verb("tokenize MODEL", "Convert text on standard input to token ids, or ids to text",
		`  printf %s "The quick brown fox" | pesti tokenize model.gguf --ids`,
		arity{1, 1, "MODEL"}, a.interruptible(func(cmd *cobra.Command, args []string) error {
			if detokenize && (asIDs || noSpecial) {
				return usagef("--detokenize takes no other option but --no-bos")
			}
			tok, err := a.tokenizerOf(args[0])
			if err != nil {
				return err
			}
			a.loaded()
			in, err := io.ReadAll(a.stdin)
			if err != nil {
				return err
			}
			if detokenize {
				return a.detokenize(cmd.Context(), tok, in, !noBOS)
			}
			ids, err := tok.Encode(cmd.Context(), in, tokenizer.Options{BOS: !noBOS, ParseSpecial: !noSpecial})
			if err != nil {
				return err
			}
			if asIDs {
				_, err := fmt.Fprintln(a.stdout, idsText(ids))
				return err
			}
			return a.printPieces(tok, ids)
		}))
	cmd.Long = cmd.Short + `.

tokenize reads standard input to its end. It prints a line for each token: the id, and the text in quotes.`
	cmd.Flags().BoolVar(&asIDs, "ids", false, "print the ids alone, as a JSON array")
	cmd.Flags().BoolVar(&noBOS, "no-bos", false, "do not add the BOS token; with --detokenize, do not remove it")
	cmd.Flags().BoolVar(&noSpecial, "no-parse-special", false, "treat the names of control tokens as plain text")
	cmd.Flags().BoolVar(&detokenize, "detokenize", false, "read ids, as a JSON array or with spaces between them, and write their text")
	return cmd
}

// tokenizerOf returns the tokenizer of the model called name.
func (a *app) tokenizerOf(name string) (*tokenizer.Tokenizer, error) {
	f, err := a.openModel(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		return nil, err
	}
	a.warn(tok.Warnings())
	return tok, nil
}

// detokenize writes the text of the ids that it reads from in. dropBOS leaves out the BOS token that the model
// adds, so that tokenizing the text gives the same ids.
func (a *app) detokenize(ctx context.Context, tok *tokenizer.Tokenizer, in []byte, dropBOS bool) error {
	ids, err := parseIDs(string(in))
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	if dropBOS {
		added, err := tok.Encode(ctx, nil, tokenizer.Options{BOS: true})
		if err != nil {
			return err
		}
		if n := len(added); n <= len(ids) && slices.Equal(ids[:n], added) {
			ids = ids[n:]
		}
	}
	text, err := tok.Decode(ids)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(text)
	return err
}

// printPieces prints a line for each token: its id and its text.
func (a *app) printPieces(tok *tokenizer.Tokenizer, ids []int32) error {
	var b bytes.Buffer
	for _, id := range ids {
		text, err := tok.Decode([]int32{id}) // unlike Piece, it names control tokens
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%d\t%s\n", id, strconv.Quote(string(text)))
	}
	_, err := a.stdout.Write(b.Bytes())
	return err
}

// idsText returns ids as a JSON array on one line.
func idsText(ids []int32) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.Itoa(int(id))
	}
	return "[" + strings.Join(words, ", ") + "]"
}
