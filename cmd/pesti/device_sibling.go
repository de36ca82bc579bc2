//go:build !libcuda

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"pesti/exec/cuda"
)

// The sibling is this program with the driver in it, built with the tag libcuda. It cannot be the one
// program for all: it needs a C compiler, and where there is no libcuda it does not start.
const (
	siblingName     = "pesti-cuda"
	siblingVariable = "PESTI_CUDA" // its path, where it is not beside this program
	siblingStarted  = "PESTI_CUDA_STARTED"
	siblingBuild    = "make " + siblingName // go build -tags libcuda, with the headers of CUDA
)

// cudaDriver lets the sibling take this process: arguments, files, signals and exit code are then its
// own. An error says why it could not.
func (a *app) cudaDriver(context.Context, int) (cuda.Driver, error) {
	path, err := a.sibling()
	if err != nil {
		return nil, err
	}
	err = syscall.Exec(path, append([]string{path}, a.args...), append(os.Environ(), siblingStarted+"=1"))
	return nil, cannot("started", path, err)
}

// sibling returns the path of the sibling once it is known that it starts here.
func (a *app) sibling() (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("a CUDA device needs Linux, and this is %s; use --%s virtual", runtime.GOOS, deviceFlag)
	}
	if a.getenv(siblingStarted) != "" {
		return "", fmt.Errorf("%s was built without the driver; build it with %s", siblingName, siblingBuild)
	}
	path := a.getenv(siblingVariable)
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		path = filepath.Join(filepath.Dir(self), siblingName)
	}
	path, err := filepath.Abs(path) // a name without a slash would be looked up in $PATH at one place alone
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w; a CUDA device needs it: build it there with %s, or use --%s virtual", cannot("found", path, err), siblingBuild, deviceFlag)
	}
	return path, starts(path)
}

// starts returns an error where the dynamic linker lacks what the program at path needs. It is asked
// beforehand: to what it says at a start, nothing could be added. A linker that does not know the
// variable runs the program, which without arguments prints its help and does no harm.
func starts(path string) error {
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), "LD_TRACE_LOADED_OBJECTS=1")
	out, err := cmd.CombinedOutput()
	if name := lacking(string(out)); name != "" {
		return fmt.Errorf("%s cannot start: there is no %s, which comes with the driver of an NVIDIA GPU; use --%s virtual", path, name, deviceFlag)
	}
	if cmd.Process == nil {
		return cannot("started", path, err)
	}
	return nil
}

// lacking returns the library that the dynamic linker's list says is not found, "" if none.
func lacking(list string) string {
	for line := range strings.Lines(list) {
		if name, missing := strings.CutSuffix(strings.TrimSpace(line), " => not found"); missing {
			return name
		}
	}
	return ""
}

// infoCUDA prints the rows of info's table about CUDA: those that the sibling prints, or why there
// are none.
func (a *app) infoCUDA(ctx context.Context, w io.Writer) error {
	rows, err := a.siblingRows(ctx)
	if err != nil {
		rows = []string{err.Error()}
	}
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "cuda\t%s\n", row); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) siblingRows(ctx context.Context) (rows []string, err error) {
	path, err := a.sibling()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "info")
	cmd.Env = append(os.Environ(), siblingStarted+"=1")
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		if text := strings.TrimPrefix(oneLine(says.String()), "pesti: "); text != "" {
			err = errors.New(text)
		}
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		if row, ok := strings.CutPrefix(line, "cuda "); ok {
			rows = append(rows, strings.TrimSpace(row))
		}
	}
	if rows == nil {
		return nil, fmt.Errorf("%s tells of no device; expected this program, built with %s", path, siblingBuild)
	}
	return rows, nil
}
