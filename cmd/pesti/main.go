// Command pesti compiles GGUF models to execution plans, and draws, verifies and runs them.
//
// It implements the command line: the inputs and outputs of verbs, flags, messages and exit codes.
// Each verb has its file. The computation is in other packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pesti/lower"
)

func main() {
	// Otherwise the runtime ends the process when a reader such as head closes the pipe.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(untilSignal(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// Exit codes.
const (
	exitError       = 1
	exitUsage       = 2
	exitInterrupted = 130 // by an interrupt; other signals have theirs
)

// An app is the environment of verbs.
type app struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string

	notices []string // warnings about the input, printed when it is loaded

	inputs   []string   // files that were read, which no output may replace
	files    sync.Mutex // held while a file is created or renamed, and for good by an interrupt
	parts    []string   // temporary files of outputs that are not complete
	written  int        // number of complete outputs
	promised []string   // files that will be written at the end of a run
}

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	a := &app{args: args, stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv}
	root := a.root()
	root.SetArgs(withoutFile(args)) // for cobra, nil means the arguments of the process
	root.SetIn(stdin)
	help := &sink{to: stdout} // cobra ignores errors of writing
	root.SetOut(help)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(flagMistake)
	cmd, err := root, error(nil)
	if completes(args) {
		err = addCompletions(root)
	} else {
		cmd, err = checkVerb(root, args)
	}
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil && help.err != nil {
		err = failure{help.err}
	}
	a.progress("")
	err = aboutWriting(err)
	code, message := verdict(err)
	if message {
		text := err.Error() + flagsHint(err)
		if code == exitUsage {
			text = hint(cmd, text)
		}
		a.say("pesti: %s", text)
	}
	if err != nil && !message {
		a.tellPromised()
	}
	if code == exitInterrupted {
		a.tellWritten(cmd)
		return stoppedCode(ctx)
	}
	return code
}

func (a *app) root() *cobra.Command {
	root := a.group("pesti", "Compile GGUF models to execution plans, inspect the plans, and run them",
		a.run(), a.inspect(), a.convert(), a.quantize(), a.compile(), a.plan(), a.dot(), a.tokenize(), a.dump(), a.compare(), a.check(), a.bench(), a.tune(), a.completion(), a.info(), a.version())
	root.Long = root.Short + `.

MODEL is a GGUF file, or the word demo for the small embedded model. PLAN is a file that compile wrote.`
	root.Example = `  pesti run -p "Once upon a time"`
	root.Version = versionText()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommand(a.help(root))
	root.SetUsageFunc(printUsage)
	root.SilenceUsage, root.SilenceErrors = true, true
	root.CompletionOptions.DisableDefaultCmd = true // a.completion replaces it
	return root
}

// help returns the verb help. Unlike the one of cobra, it refuses verbs that do not exist.
func (a *app) help(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [VERB]",
		Short: "Print the help of a verb",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("unknown verb %q; see pesti --help", strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			found.InitDefaultVersionFlag()
			return found.Help()
		},
	}
}

// checkVerb returns an error if args name a verb that does not exist, and the command without that
// verb. Cobra does not check this if args ask for help.
func checkVerb(root *cobra.Command, args []string) (*cobra.Command, error) {
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(args)
	for _, word := range rest {
		switch {
		case err != nil || !cmd.HasSubCommands():
			return cmd, err
		case word == "--help" || word == "-h" || word == "--":
		case strings.HasPrefix(word, "-"):
			return cmd, nil // a flag, which cobra checks
		default:
			return cmd, unknownVerb(cmd, word)
		}
	}
	return cmd, err
}

// group returns a command that consists of verbs.
func (a *app) group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs, // checkVerb has a better error
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SetOut(a.stderr)
			if err := cmd.Help(); err != nil {
				return err
			}
			return errors.New("expected a verb")
		},
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// verb returns the command for one verb. Errors of body are wrapped in failure; all other errors
// that cobra returns are usage errors.
func (a *app) verb(use, short, example string, args arity, body func(cmd *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use:     use,
		Short:   short,
		Example: example,
		Args:    args.check,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := checkSaid(cmd.Flags())
			if err == nil {
				err = a.reachDriver(cmd, args)
			}
			if err == nil {
				err = body(cmd, args)
			}
			if err != nil {
				return failure{err}
			}
			a.loaded()
			return nil
		},
	}
}

// checkSaid returns an error for a flag with an empty value, for example from an unset shell
// variable. A text or a list may be empty.
func checkSaid(set *pflag.FlagSet) (err error) {
	set.Visit(func(f *pflag.Flag) {
		name, _ := pflag.UnquoteUsage(f)
		if f.Value.Type() == "string" && f.Value.String() == "" && name != "TEXT" && name != "LIST" && err == nil {
			err = usagef("--%s is empty, expected a %s", f.Name, name)
		}
	})
	return err
}

// interruptible lets an interrupt end a body that does not watch the context. It removes files that
// are being written.
func (a *app) interruptible(body func(cmd *cobra.Command, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		done := make(chan error, 1)
		go func() { done <- body(cmd, args) }()
		select {
		case err := <-done:
			return err
		case <-cmd.Context().Done():
			a.abandonFiles()
			return cmd.Context().Err()
		}
	}
}

// An arity is the number of arguments of a verb.
type arity struct {
	least, most int
	what        string
}

func (n arity) check(cmd *cobra.Command, args []string) error {
	if len(args) < n.least || len(args) > n.most {
		return fmt.Errorf("found %s, expected %s", plural(len(args), "argument"), n.what)
	}
	return nil
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// A failure is an error that a verb's body returned.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// A usage is an error of the command line that a verb's body finds.
type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

// verdict returns the exit code for an error, and whether to print the error.
func verdict(err error) (code int, message bool) {
	var u usage
	var o *lower.OptionError
	var f failure
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE): // the reader of the output has closed it
		return 0, false
	case errors.Is(err, context.Canceled):
		return exitInterrupted, false
	case errors.As(err, &u), errors.As(err, &o), !errors.As(err, &f):
		return exitUsage, true
	}
	return exitError, true
}

// about adds the file's name to err unless err has it. The executor calls a plan "plan", since only
// this package knows its file.
func about(name string, err error) error {
	err = withFlag(err)
	text := err.Error()
	if strings.HasPrefix(text, name+": ") {
		return err
	}
	return named{name + ": " + strings.TrimPrefix(text, "plan: "), err}
}

// A named is an error whose text begins with the name of a file.
type named struct {
	text string
	error
}

func (n named) Error() string { return n.text }
func (n named) Unwrap() error { return n.error }

// oneLine returns a message as one line that is safe on a terminal. Line breaks and tabs become spaces.
// Characters that cannot be printed, such as an escape in a name from a file, are written as in a Go
// string.
func oneLine(s string) string {
	var b strings.Builder
	for i, word := range strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' || r == '\t' }) {
		if i > 0 {
			b.WriteByte(' ')
		}
		for len(word) > 0 {
			r, size := utf8.DecodeRuneInString(word)
			if strconv.IsPrint(r) && (r != utf8.RuneError || size > 1) {
				b.WriteString(word[:size])
			} else {
				b.WriteString(strings.Trim(strconv.Quote(word[:size]), `"`))
			}
			word = word[size:]
		}
	}
	return b.String()
}

// warn keeps notices until the input is loaded. If loading fails, they are not printed, so that the output is
// one line: the error.
func (a *app) warn(notices []string) { a.notices = append(a.notices, notices...) }

// loaded prints the notices, one on a line. Verbs call it when their input is loaded; it is also called after
// each verb.
func (a *app) loaded() {
	for _, n := range a.notices {
		a.say("pesti: warning: %s", n)
	}
	a.notices = nil
}

// say prints a line on standard error.
func (a *app) say(format string, args ...any) {
	a.progress("")
	fmt.Fprintf(a.stderr, "%s\n", oneLine(fmt.Sprintf(format, args...)))
}
