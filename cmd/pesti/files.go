package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gorgonia.org/tensor"
)

// writeFile has write fill the file at path. A file that is there is replaced only when all has
// been written, so that nobody ever reads half of one. What is no regular file, such as
// /dev/stdout, is written to as it is.
func writeFile(path string, write func(io.Writer) error) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // replace the file, not the link to it
	}
	final := path
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return fmt.Errorf("%s: is a directory, expected a file to write", path)
		}
		final = ""
	}
	flags := os.O_WRONLY
	if final != "" {
		path = fmt.Sprintf("%s.%d.tmp", final, os.Getpid())
		flags |= os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o666)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<18)
	for _, step := range []func() error{func() error { return write(b) }, b.Flush} {
		if err == nil {
			err = step()
		}
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if final == "" {
		return err
	}
	if err == nil {
		err = os.Rename(path, final)
	}
	if err != nil {
		os.Remove(path)
	}
	return err
}

// writeNpy writes t as a file that numpy.load reads.
func writeNpy(path string, t *tensor.Dense) error { return writeFile(path, t.WriteNpy) }

// printJSON prints v indented on standard output.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// bytesText returns a size for people: "374.0 MiB".
func bytesText(n int64) string {
	x, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for x >= 1024 && len(units) > 1 {
		x, units = x/1024, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", x, units[0])
}
