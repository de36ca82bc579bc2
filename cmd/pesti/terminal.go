package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal tells whether somebody sits at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// binaryTo returns an error for a path where somebody would see the bytes of a file in place of text.
func (a *app) binaryTo(path string) error {
	if path == standardStream && isTerminal(a.stdout) {
		return usagef("-o %s: standard output is a terminal, which shows text; expected a file, or a pipe", path)
	}
	return nil
}

// progress shows what long work is at, in place of what it showed before, where somebody sits
// at standard error; elsewhere it is silent. An empty text removes it.
func (a *app) progress(format string, args ...any) {
	if isTerminal(a.stderr) {
		fmt.Fprintf(a.stderr, "\r\x1b[K"+format, args...)
	}
}
