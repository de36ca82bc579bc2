package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pesti/exec/plan"
)

// promptFlags are the flags of the verbs that evaluate tokens and generate none.
type promptFlags struct {
	text, file, list string
	given            *pflag.FlagSet // to ask which flags were given
}

// promptWords names these flags in messages.
const promptWords = "one of -p TEXT, -f FILE and --ids LIST"

// addPromptFlags gives cmd the flags for the tokens to evaluate.
func addPromptFlags(cmd *cobra.Command) *promptFlags {
	f := cmd.Flags()
	p := &promptFlags{given: f}
	f.StringVarP(&p.text, "prompt", "p", "", "`TEXT` to evaluate")
	f.StringVarP(&p.file, "file", "f", "", "`FILE` with the text to evaluate, read as bytes; - is standard input")
	f.StringVar(&p.list, "ids", "", "`LIST` of token ids to evaluate instead of a text, such as 1,2,3")
	return p
}

// count returns how many of the flags are given.
func (p *promptFlags) count() int {
	n := 0
	for _, name := range []string{"prompt", "file", "ids"} {
		if p.given.Changed(name) {
			n++
		}
	}
	return n
}

// read returns the given ids or the given text. Both are nil if no flag is given.
func (p *promptFlags) read(ctx context.Context, a *app) (ids []int32, text []byte, err error) {
	switch {
	case p.given.Changed("ids"):
		if ids, err = parseIDs(p.list); err != nil {
			return nil, nil, usagef("--ids: %w", err)
		}
		if len(ids) == 0 {
			return nil, nil, usagef("--ids is empty, expected at least one token id")
		}
	case p.given.Changed("file"):
		text, err = a.promptFile(ctx, p.file)
	case p.given.Changed("prompt"):
		text = []byte(p.text)
	}
	return ids, text, err
}

// tokens returns the ids to evaluate on s. It is an error if there are none.
func (p *promptFlags) tokens(ctx context.Context, s *source) ([]int32, error) {
	if p.count() != 1 {
		return nil, usagef("expected %s", promptWords)
	}
	ids, text, err := p.read(ctx, s.app)
	if err != nil || ids != nil {
		return ids, err
	}
	return promptIDs(ctx, s, text)
}

// promptIDs returns the ids of a text.
func promptIDs(ctx context.Context, s *source, text []byte) ([]int32, error) {
	tok, err := s.Tokenizer()
	if err != nil {
		return nil, err
	}
	s.app.warn(tok.Warnings())
	ids, err := tok.EncodePrompt(ctx, text)
	if err != nil {
		return nil, about(s.File.Path, err)
	}
	return ids, nil
}

// promptFile returns the bytes of the file at path. The end of ctx ends it: a pipe can keep a reader waiting.
func (a *app) promptFile(ctx context.Context, path string) ([]byte, error) {
	read := func() ([]byte, error) { return readPrompt(a.stdin, "standard input") }
	if path != standardStream {
		a.inputs = append(a.inputs, path)
		read = func() ([]byte, error) {
			f, err := os.Open(path)
			if err != nil {
				return nil, cannot("opened", path, err)
			}
			text, err := readPrompt(f, path)
			return text, errors.Join(err, f.Close())
		}
	}
	var text []byte
	done := make(chan error, 1)
	go func() {
		var err error
		text, err = read()
		done <- err
	}()
	select {
	case err := <-done:
		return text, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// mostPrompt is the maximum size of a prompt in bytes, far beyond any context. A device file may be endless.
const mostPrompt = 64 << 20

func readPrompt(r io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, mostPrompt+1))
	if err != nil {
		return nil, cannot("read", name, err)
	}
	if len(text) > mostPrompt {
		return nil, fmt.Errorf("%s: is longer than %s, expected a text that fits in a context", name, plan.HumanBytes(mostPrompt))
	}
	return text, nil
}
