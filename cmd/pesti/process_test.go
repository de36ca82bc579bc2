package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// mainVariable makes the test binary the program itself.
const mainVariable = "PESTI_TEST_MAIN"

func TestMain(m *testing.M) {
	if path := os.Getenv(peakVariable); path != "" {
		code := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
		leavePeak(path)
		os.Exit(code)
	}
	if os.Getenv(mainVariable) != "" {
		main()
	}
	os.Setenv(tuneVariable, tuneOff) // for the processes that tests start
	os.Exit(m.Run())
}

// A process is the program in a process of its own, with a pipe as standard output.
type process struct {
	*exec.Cmd
	out io.ReadCloser
	err bytes.Buffer
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startUnder(t, nil, args...)
}

// startUnder is start by another program, which runs the command line that follows its own arguments.
func startUnder(t *testing.T, launcher []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	line := slices.Concat(launcher, []string{self}, args)
	p := &process{Cmd: exec.Command(line[0], line[1:]...)}
	p.Env = append(os.Environ(), mainVariable+"=1")
	p.Stderr = &p.err
	if p.out, err = p.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// read returns the first n bytes of standard output.
func (p *process) read(t *testing.T, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(p.out, b); err != nil {
		t.Fatalf("%v: %s", err, &p.err)
	}
	return string(b)
}

// exitCode waits for the end; −1 means that a signal ended it.
func (p *process) exitCode() int {
	p.Wait()
	return p.ProcessState.ExitCode()
}

func TestProcess(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
	endless := []string{"run", "-p", story, "--temp", "0", "--ignore-eos"}

	whole := start(t, "run", "-p", story, "--temp", "0", "-n", "5")
	text, err := io.ReadAll(whole.out)
	if code := whole.exitCode(); err != nil || code != 0 || len(text) < 10 || whole.err.Len() > 0 {
		t.Errorf("exit code %d, %q, says %q", code, text, &whole.err)
	}

	head := start(t, endless...) // | head -c 10
	got := head.read(t, 10)
	head.out.Close()
	if code := head.exitCode(); code != 0 || got != string(text[:10]) || head.err.Len() > 0 {
		t.Errorf("a reader of 10 bytes gets %q, exit code %d, says %q; want %q, 0 and nothing", got, code, &head.err, text[:10])
	}

	// The parent of the tests may ignore hang-ups, as nohup does, and a child would inherit that.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for sig, code := range map[os.Signal]int{os.Interrupt: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		p := start(t, append(endless, "--passes", "none")...) // slow, so that the signal comes before the end
		p.read(t, 10)
		if err := p.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, p.out)
		if got := p.exitCode(); got != code || !strings.Contains(p.err.String(), "stopped by interrupt") {
			t.Errorf("%v: exit code %d, want %d; says %q", sig, got, code, &p.err)
		}
	}

	waiting := start(t, "tokenize", "demo", "--bogus")
	if code := waiting.exitCode(); code != exitUsage {
		t.Errorf("an unknown flag: exit code %d", code)
	}
}

// An interrupt leaves neither an incomplete file nor a temporary file.
func TestInterruptWhileWriting(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	saveFile(t, path, "old")
	ctx, cancel := context.WithCancel(context.Background())
	a := &app{}
	begun, resume, ended := make(chan bool), make(chan bool), make(chan error, 1)
	verb := a.verb("write", "", "", arity{}, a.interruptible(func(cmd *cobra.Command, args []string) error {
		err := a.writeFile(cmd.Context(), path, func(w io.Writer) error {
			close(begun)
			<-ctx.Done()
			<-resume
			_, err := w.Write(make([]byte, 2*writeSize))
			return err
		})
		ended <- err
		return err
	}))
	verb.SilenceErrors, verb.SilenceUsage = true, true
	verb.SetArgs([]string{})
	go func() {
		<-begun
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 2 {
			t.Errorf("while writing there are %q, want two files", files)
		}
		cancel()
	}()
	err := verb.ExecuteContext(ctx) // returns without waiting for the writer
	left := func() {
		t.Helper()
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 || readFile(t, path) != "old" {
			t.Errorf("the interrupt left %q, want the old file", files)
		}
	}
	left()
	a.files.Unlock() // a real process would have ended
	close(resume)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("writing ends with %v, want an interrupt", err)
	}
	left()
	if code, _ := verdict(err); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
}

// A verb that waits for input ends at an interrupt.
func TestInterruptible(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"tokenize", "demo"},
		{"run", "demo", "-f", "-"},
		{"dump", "demo", "-f", "-", "-o", filepath.Join(t.TempDir(), "values")},
		{"check", "demo", "-f", "-"},
		{"compare", "demo", "demo", "--but", "precision=fast", "-f", "-"},
		{"bench", "demo", "--speculate", "2", "--file", "-"},
	} {
		p := &process{Cmd: exec.Command(self, args...)}
		p.Env = append(os.Environ(), mainVariable+"=1")
		in, err := p.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		// The pipe holds 64 KiB, so once more than that is written, the program is reading.
		if _, err := in.Write(bytes.Repeat([]byte("story "), 40_000)); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		if err := p.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		stuck := time.AfterFunc(20*time.Second, func() { p.Process.Kill() })
		if code := p.exitCode(); code != exitInterrupted {
			t.Errorf("%q: exit code %d, want %d", args, code, exitInterrupted)
		}
		stuck.Stop()
		in.Close()
	}
}
