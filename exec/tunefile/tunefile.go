// Package tunefile stores engines' measured choices (exec.Tuned) in a file, so that later processes
// need not measure again. It defines the format and the location of such files. It imports exec and
// nothing else of this module.
package tunefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"pesti/exec"
)

// A Key identifies what choices are valid for: a processor, a number of workers and a build.
type Key struct {
	Processor string `json:"processor"`
	ISA       string `json:"isa"`
	Threads   int    `json:"threads"`
	Build     string `json:"build"`
}

// NewKey returns the key of this process for an instruction set and a number of workers.
func NewKey(isa string, threads int) Key {
	return Key{Processor: processor(), ISA: isa, Threads: threads, Build: build()}
}

// String describes a key in an error.
func (k Key) String() string {
	return fmt.Sprintf("%s, %s, %d threads, build %s", k.Processor, k.ISA, k.Threads, k.Build)
}

// Path returns the file for a key in the user's cache folder.
func Path(k Key) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	k.Build = ""
	sum := sha256.Sum256([]byte(k.String()))
	return filepath.Join(dir, "pesti", "tune", hex.EncodeToString(sum[:8])+".json"), nil
}

// format is the version of the file format.
const format = 1

// contents is the JSON form of a file.
type contents struct {
	Format     int               `json:"tune_format"`
	Key        Key               `json:"key"`
	ReadOrders map[string]string `json:"read_orders"` // by type of the weights, as in exec.Options
}

// ErrOtherKey reports a file with choices for another key, or of another version of the format.
var ErrOtherKey = errors.New("was measured for something else")

// mostBytes is the largest size of a file.
const mostBytes = 1 << 16

// Load returns the choices in a file. A file that does not exist has none. Its error names the
// file, and is ErrOtherKey if the choices are for another key.
func Load(path string, k Key) (map[string]string, error) {
	switch st, err := os.Stat(path); { // before Open, which would block on a pipe
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: cannot be opened: %w", path, cause(err))
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file, expected a tune file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be opened: %w", path, cause(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", path, cause(err))
	}
	c, err := parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: is damaged or no tune file (%w)", path, err)
	case c.Format != format:
		return nil, fmt.Errorf("%s: %w: has tune format %d, expected %d", path, ErrOtherKey, c.Format, format)
	case c.Key != k:
		return nil, fmt.Errorf("%s: %w: %s; expected %s", path, ErrOtherKey, c.Key, k)
	}
	return c.ReadOrders, nil
}

// parse returns the contents of a file.
func parse(text []byte) (c contents, err error) {
	if len(text) > mostBytes {
		return c, fmt.Errorf("it has more than %d bytes", mostBytes)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, err
	}
	if _, err := d.Token(); err != io.EOF {
		return c, errors.New("it continues after the end of its JSON object")
	}
	for kind, order := range c.ReadOrders {
		err := exec.CheckReadOrder(kind, order)
		if err == nil && kind != strings.ToLower(kind) {
			err = fmt.Errorf("type %q of weights is not in lower case", kind)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// Save adds measured choices to a file. It replaces the choices for another key. A file that Load refuses for another
// reason stays, since it may be anything: Save returns that error. Several processes may save at the same time: the
// file is complete at any time, but the choices of one process may be lost.
func Save(path string, k Key, tuned []exec.Tuned) (err error) {
	known, err := Load(path, k)
	if err != nil && !errors.Is(err, ErrOtherKey) {
		return err
	}
	orders, measured := map[string]string{}, false
	maps.Copy(orders, known)
	for _, t := range tuned {
		if len(t.Tried) > 0 {
			orders[t.Type], measured = t.Order, true
		}
	}
	if !measured {
		return nil
	}
	text, err := json.MarshalIndent(contents{format, k, orders}, "", "  ") // with sorted keys
	if err != nil {
		return err
	}
	if err := replace(path, append(text, '\n')); err != nil {
		return fmt.Errorf("%s: cannot be written: %w", path, cause(err))
	}
	return nil
}

// replace gives a file new contents at once. It keeps a symbolic link.
func replace(path string, text []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// processor returns the name of the processor if the system reports it (Linux: /proc/cpuinfo).
func processor() string {
	name := runtime.GOOS + "/" + runtime.GOARCH
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return name
	}
	first, _, _ := strings.Cut(string(text), "\n\n")
	for line := range strings.Lines(first) {
		field, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(field) {
		case "model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part":
			name += " " + strings.TrimSpace(value)
		}
	}
	return name
}

// cause removes the operation and the path that package os puts before an error.
func cause(err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		return pe.Err
	case errors.As(err, &le):
		return le.Err
	}
	return err
}
