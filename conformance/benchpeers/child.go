package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A child is a process that ended without an error.
type child struct {
	out  []byte        // its standard output
	wall time.Duration // from its start to its end
	cpu  time.Duration // of all its threads
	peak int64         // peak resident bytes, or 0 if the system does not report them
}

// runChild runs a program to its end. An error contains the last line of its standard error.
func runChild(ctx context.Context, command []string) (*child, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &said
	begin := time.Now()
	err := cmd.Run()
	wall := time.Since(begin)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		last := cmp.Or(lines[len(lines)-1], "no message")
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(command[0]), strings.Join(command[1:], " "), err, last)
	}
	state := cmd.ProcessState
	return &child{out.Bytes(), wall, state.UserTime() + state.SystemTime(), peakResident(state)}, nil
}
