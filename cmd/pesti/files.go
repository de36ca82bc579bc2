package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gorgonia.org/tensor"
)

// writeFile has write fill the file at path. A file that is there is replaced only when all has
// been written, so that nobody ever reads half of one. What is no regular file, such as
// /dev/stdout, is written to as it is.
func writeFile(path string, write func(io.Writer) error) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // replace the file, not the link to it
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fill(path, os.O_WRONLY, write)
	}
	part := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	err = fill(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, write)
	if err == nil {
		err = os.Rename(part, path)
	}
	if err == nil {
		return nil
	}
	os.Remove(part)
	var of *os.PathError
	if errors.As(err, &of) && of.Path == part {
		return fmt.Errorf("%s: cannot be written: %w", path, of.Err)
	}
	return err
}

// fill opens the file at path and has write fill it.
func fill(path string, flags int, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, flags, 0o666)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<18)
	err = write(b)
	if err == nil {
		err = b.Flush()
	}
	return errors.Join(err, f.Close())
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
