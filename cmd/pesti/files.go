package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"pesti/conformance/compare"
)

// standardStream is the path that stands for standard input or output.
const standardStream = "-"

// cannot returns err as an error about the file at path; nil if err is nil.
func cannot(verb, path string, err error) error {
	if err == nil {
		return nil
	}
	var of *os.PathError
	if errors.As(err, &of) {
		err = of.Err
	}
	if path == "" {
		path = `""`
	}
	return fmt.Errorf("%s: cannot be %s: %w", path, verb, err)
}

// aboutWriting adds the name of the file, or standard output, to a write error, since the writer
// does not know the name.
func aboutWriting(err error) error {
	var of *os.PathError
	if !errors.As(err, &of) || of.Op != "write" {
		return err
	}
	name := of.Path
	if name == os.Stdout.Name() {
		name = "standard output"
	}
	return failure{cannot("written", name, of)}
}

// A sink keeps the first error of writing, for callers that ignore it.
type sink struct {
	to  io.Writer
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.to.Write(b)
	s.err = cmp.Or(s.err, err)
	return n, err
}

// output has write fill the file at path, or standard output.
func (a *app) output(ctx context.Context, path string, write func(io.Writer) error) error {
	if path != standardStream {
		return a.writeFile(ctx, path, write)
	}
	b := bufio.NewWriterSize(watched{ctx, a.stdout}, writeSize)
	if err := write(b); err != nil {
		return err
	}
	return b.Flush()
}

// spareInputs returns an error if the file at path was read as an input.
func (a *app) spareInputs(path string) error {
	if slices.ContainsFunc(a.inputs, func(input string) bool { return sameFile(input, path) }) {
		return usagef("%s: is read by this command, expected another file to write", path)
	}
	return nil
}

// writeFile has write fill the file at path. It refuses a file that was read: writing over a model would
// destroy it.
func (a *app) writeFile(ctx context.Context, path string, write func(io.Writer) error) error {
	if err := a.spareInputs(path); err != nil {
		return err
	}
	return a.replaceFile(ctx, path, write)
}

// replaceFile has write fill the file at path. An existing file is replaced only after everything
// is written, so that no reader sees a part, and an interrupt leaves it unchanged. A path that is
// no regular file, such as /dev/stdout, is written to directly.
func (a *app) replaceFile(ctx context.Context, path string, write func(io.Writer) error) error {
	s, err := a.stage(ctx, path, write)
	if err != nil {
		return err
	}
	return a.place(s)
}

// A staged file is complete, but not renamed to its final path yet.
type staged struct {
	part string // the temporary path, "" for a file that was written directly
	path string
}

// stage has write fill a temporary file, which place then renames to path. On an error it removes
// the file.
func (a *app) stage(ctx context.Context, path string, write func(io.Writer) error) (*staged, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // replace the file, not the link to it
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, cannot("opened", path, err)
		}
		a.files.Lock()
		a.written++
		a.files.Unlock()
		return &staged{path: path}, fill(ctx, f, write)
	}
	f, err := a.createPart(path)
	if err != nil {
		return nil, cannot("written", path, err)
	}
	s := &staged{f.Name(), path}
	err = fill(ctx, f, write)
	if err == nil {
		err = spareModel(path, s.part)
	}
	if err == nil {
		return s, nil
	}
	a.discard(s)
	var of *os.PathError
	if errors.As(err, &of) && of.Path == s.part {
		err = cannot("written", path, of)
	}
	return nil, err
}

// place renames a staged file to its path.
func (a *app) place(s *staged) error {
	if s.part == "" {
		return nil
	}
	a.files.Lock()
	defer a.files.Unlock()
	a.forgetPart(s.part)
	if err := os.Rename(s.part, s.path); err != nil {
		os.Remove(s.part)
		return err
	}
	a.written++
	return nil
}

// discard removes a staged file.
func (a *app) discard(s *staged) {
	if s.part == "" {
		return
	}
	a.files.Lock()
	defer a.files.Unlock()
	a.forgetPart(s.part)
	os.Remove(s.part)
}

func (a *app) forgetPart(part string) {
	a.parts = slices.DeleteFunc(a.parts, func(p string) bool { return p == part })
}

// writeFolder writes all of the files to dir, or none. If one cannot be written, for example on a
// full disk, existing files of these names stay unchanged. It creates the folder, and removes it
// again if it fails.
func (a *app) writeFolder(ctx context.Context, dir string, files []compare.DumpFile) (err error) {
	made, err := makeFolder(dir)
	var all []*staged
	defer func() {
		if err == nil {
			return
		}
		for _, s := range all {
			a.discard(s)
		}
		for _, d := range made {
			os.Remove(d) // fails, as it should, if the folder is not empty
		}
	}()
	if err != nil {
		return cannot("made", dir, err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if err := a.spareInputs(path); err != nil {
			return err
		}
		a.progress("writing %s", f.Name)
		s, err := a.stage(ctx, path, f.Write)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	a.progress("")
	for len(all) > 0 {
		if err := a.place(all[0]); err != nil {
			return err
		}
		all = all[1:]
	}
	return nil
}

// makeFolder creates a folder and its missing parents, and returns the created folders, the
// innermost first.
func makeFolder(dir string) (made []string, err error) {
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, d)
	}
	return made, os.MkdirAll(dir, 0o777)
}

// spareModel returns an error if the file at path is a model and its replacement is none, because
// users rarely intend to overwrite a model.
func spareModel(path, by string) error {
	if isModel(path) && !isModel(by) {
		return usagef("%s: is a GGUF model, which only a model may replace; expected another file to write", path)
	}
	return nil
}

// sameFile reports whether both paths name the same existing file.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// createPart creates the temporary file that is renamed to path after everything is written.
func (a *app) createPart(path string) (*os.File, error) {
	a.files.Lock()
	defer a.files.Unlock()
	f, err := os.Create(fmt.Sprintf("%s.%d.tmp", path, os.Getpid()))
	if err == nil {
		a.parts = append(a.parts, f.Name())
	}
	return f, err
}

// abandonFiles removes the temporary files, and blocks all later creation and renaming of files.
func (a *app) abandonFiles() {
	a.files.Lock()
	for _, part := range a.parts {
		os.Remove(part)
	}
}

// tellPromised prints the files that the run was to write at its end.
func (a *app) tellPromised() {
	for _, path := range a.promised {
		a.say("pesti: %s is not written, since the run did not end", path)
	}
}

// kept records that a promised file is written.
func (a *app) kept(path string) {
	a.promised = slices.DeleteFunc(a.promised, func(p string) bool { return p == path })
}

// tellWritten prints the number of files that an interrupted verb has written.
func (a *app) tellWritten(verb *cobra.Command) {
	f := verb.Flags().Lookup("output")
	if f == nil || f.Value.String() == "" || f.Value.String() == standardStream {
		return
	}
	what := "nothing was"
	switch {
	case a.written == 1:
		what = "one file was"
	case a.written > 1:
		what = fmt.Sprintf("%d files were", a.written)
	}
	a.say("pesti: interrupted; %s written to %s", what, f.Value)
}

// writeSize is the number of bytes that are written at a time.
const writeSize = 1 << 18

// fill has write fill f, and closes it.
func fill(ctx context.Context, f *os.File, write func(io.Writer) error) error {
	b := bufio.NewWriterSize(watched{ctx, f}, writeSize)
	err := write(b)
	if err == nil {
		err = b.Flush()
	}
	return errors.Join(err, f.Close())
}

// A watched writer fails when its context has ended.
type watched struct {
	ctx context.Context
	to  io.Writer
}

func (w watched) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.to.Write(b)
}

// show prints the result of a verb on standard output, as text or as JSON.
func (a *app) show(found interface{ print(w io.Writer) error }, asJSON bool) error {
	if asJSON {
		return a.printJSON(found)
	}
	return found.print(a.stdout)
}

// printJSON prints v indented on standard output.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
