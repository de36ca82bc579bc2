package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// binaryTo returns an error if binary output would go to a terminal.
func (a *app) binaryTo(path string) error {
	if path == standardStream && isTerminal(a.stdout) {
		return usagef("-o %s: standard output is a terminal, which shows text; expected a file, or a pipe", path)
	}
	return nil
}

// progress displays the progress of long work if standard error is a terminal. Each call replaces
// the text of the call before; an empty text removes it.
func (a *app) progress(format string, args ...any) {
	if isTerminal(a.stderr) {
		fmt.Fprintf(a.stderr, "\r\x1b[K"+format, args...)
	}
}
