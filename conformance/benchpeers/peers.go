package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// peerEngines returns the engines of -peer, in that order.
func (o *options) peerEngines(ctx context.Context) ([]*engine, error) {
	var list []*engine
	for _, text := range o.peers {
		e, err := o.peerEngine(ctx, text)
		if err != nil {
			return nil, err
		}
		for _, other := range list {
			if other.Name == e.Name {
				return nil, fmt.Errorf("-peer %s: found the name %s twice, expected another one in NAME=FILE", text, e.Name)
			}
		}
		list = append(list, e)
	}
	return list, nil
}

// peerEngine returns the engine of one -peer: a folder, or a llama-bench with or without a name.
func (o *options) peerEngine(ctx context.Context, text string) (*engine, error) {
	if info, err := os.Stat(text); err == nil && info.IsDir() {
		return o.folderEngine(text)
	}
	name, file, named := strings.Cut(text, "=")
	if !named {
		name, file = "llama-bench", text
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("-peer: %w; expected a folder that conformance/llamacpp/build.py made, or a llama-bench", err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("-peer %s: found a folder, expected a llama-bench after NAME=", text)
	}
	if file, err = filepath.Abs(file); err != nil { // a command without a folder would be searched for in PATH
		return nil, err
	}
	return o.fileEngine(ctx, name, file)
}

// folderEngine returns the engine of the tools that conformance/llamacpp/build.py made.
func (o *options) folderEngine(folder string) (*engine, error) {
	text, err := os.ReadFile(filepath.Join(folder, "build.json"))
	if err != nil {
		return nil, fmt.Errorf("-peer: %w; expected a folder that conformance/llamacpp/build.py made", err)
	}
	var build struct {
		Package   string
		Compilers []string
	}
	if err := json.Unmarshal(text, &build); err != nil || len(build.Compilers) == 0 {
		return nil, fmt.Errorf("-peer %s: build.json has no package and compilers, expected the file that conformance/llamacpp/build.py wrote", folder)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, err
	}
	return &engine{
		program: program{"llama.cpp", build.Package + ", " + build.Compilers[0]},
		bench:   o.llamaBench(filepath.Join(folder, "llama-bench"), test.flags),
		start:   o.completion(folder),
	}, nil
}

// fileEngine returns the engine of a llama-bench of llama.cpp or one of its forks. How it generates
// after a context is read from its help: -d of llama.cpp, or -gp of ik_llama.cpp. Its output has the
// version. The start is measured if llama-completion is in its folder.
func (o *options) fileEngine(ctx context.Context, name, file string) (*engine, error) {
	help, err := exec.CommandContext(ctx, file, "--help").CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // some print the help and fail
		return nil, fmt.Errorf("-peer %s: %w", file, err)
	}
	e := &engine{program: program{Name: name}}
	switch text := string(help); {
	case strings.Contains(text, "--n-depth"):
		e.bench = o.llamaBench(file, test.flags)
	case strings.Contains(text, "--n-gen"):
		e.bench = o.llamaBench(file, test.flagsWithoutDepth)
		e.prints = test.withoutDepth
	default:
		return nil, fmt.Errorf("-peer %s: its --help has no --n-gen, expected a llama-bench", file)
	}
	if folder := filepath.Dir(file); isFile(filepath.Join(folder, "llama-completion")) {
		e.start = o.completion(folder)
	}
	return e, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// llamaBench returns the command line of a llama-bench. flags returns the test as its flags.
func (o *options) llamaBench(file string, flags func(test) []string) func(model string, t test) []string {
	return func(model string, t test) []string {
		return append([]string{file, "-m", model, "-o", "json", "-r", "1", "-t", strconv.Itoa(o.threads)}, flags(t)...)
	}
}

// completion returns the command line that prints one token.
func (o *options) completion(folder string) func(model string) []string {
	return func(model string) []string {
		return []string{filepath.Join(folder, "llama-completion"), "-m", model, "-p", prompt, "-n", "1", "--temp", "0",
			"-t", strconv.Itoa(o.threads), "-c", strconv.Itoa(positions), "-no-cnv"}
	}
}

// flagsWithoutDepth returns the test as flags of a llama-bench that has no -d. Its -gp generates after
// a prompt and counts only what it generates.
func (t test) flagsWithoutDepth() []string {
	if t.NDepth == 0 {
		return []string{"-p", strconv.Itoa(t.NPrompt), "-n", strconv.Itoa(t.NGen)}
	}
	return []string{"-p", "0", "-n", "0", "-gp", fmt.Sprintf("%d,%d", t.NDepth, t.NGen)}
}

// withoutDepth returns the test as such a llama-bench prints it.
func (t test) withoutDepth() test {
	if t.NDepth == 0 {
		return t
	}
	return test{NPrompt: t.NDepth, NGen: t.NGen}
}
