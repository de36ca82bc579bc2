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

	"pesti/exec/backends"
)

// A command that needs a CUDA device runs in pesti-cuda, which is this program built with the tag
// libcuda. The drivers are in a separate program because it needs a C compiler to build and does
// not start without libcuda.
const (
	reexecName     = "pesti-cuda"
	reexecVariable = "PESTI_CUDA" // its path, if it is not in the folder of this program
	reexecStarted  = "PESTI_CUDA_STARTED"
	reexecBuild    = "make " + reexecName // go build -tags libcuda, with the headers of CUDA
)

// reexec replaces this process by pesti-cuda, with the same arguments, files and signals. It
// returns only on an error.
func (a *app) reexec() error {
	path, err := a.reexecPath()
	if err != nil {
		return err
	}
	err = syscall.Exec(path, append([]string{path}, a.args...), append(os.Environ(), reexecStarted+"=1"))
	return cannot("started", path, err)
}

// reexecPath returns the path of pesti-cuda after checking that it starts on this machine.
func (a *app) reexecPath() (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("a CUDA device needs Linux, and this is %s; use --%s virtual", runtime.GOOS, deviceFlag)
	}
	if a.getenv(reexecStarted) != "" {
		return "", fmt.Errorf("%s was built without the driver; build it with %s", reexecName, reexecBuild)
	}
	path := a.getenv(reexecVariable)
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		path = filepath.Join(filepath.Dir(self), reexecName)
	}
	path, err := filepath.Abs(path) // otherwise a name without a slash would be looked up in $PATH
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w; a CUDA device needs it: build it there with %s, or use --%s virtual", cannot("found", path, err), reexecBuild, deviceFlag)
	}
	return path, starts(path)
}

// starts returns an error if the dynamic linker lacks a library that the program at path needs. It
// asks the linker beforehand, because the linker's own message at a failed start gives no advice. A
// linker that does not know the variable runs the program, which without arguments only prints its
// help.
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

// lacking returns the first library that is "not found" in the dynamic linker's list, or "".
func lacking(list string) string {
	for line := range strings.Lines(list) {
		if name, missing := strings.CutSuffix(strings.TrimSpace(line), " => not found"); missing {
			return name
		}
	}
	return ""
}

// infoCUDA prints the CUDA rows of info's table: one for each device, or the reason why there is none.
func (a *app) infoCUDA(ctx context.Context, w io.Writer) error {
	var rows []string
	driver, err := backends.Open(backends.CUDA, 0)
	switch {
	case err == nil:
		if rows, err = backends.Describe(driver); err != nil {
			return err
		}
	case errors.Is(err, backends.ErrNotBuilt):
		if rows, err = a.reexecRows(ctx); err != nil {
			rows = []string{err.Error()}
		}
	default:
		return err
	}
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "cuda\t%s\n", row); err != nil {
			return err
		}
	}
	return nil
}

// reexecRows returns the rows that pesti-cuda prints.
func (a *app) reexecRows(ctx context.Context) (rows []string, err error) {
	path, err := a.reexecPath()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "info")
	cmd.Env = append(os.Environ(), reexecStarted+"=1")
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
		return nil, fmt.Errorf("%s lists no device; expected this program, built with %s", path, reexecBuild)
	}
	return rows, nil
}
