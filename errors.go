package pesti

import (
	"errors"
	"fmt"

	"pesti/exec"
	"pesti/exec/sample"
	"pesti/lower"
)

// Errors that callers test for with errors.Is. A canceled call returns an error that is context.Canceled
// or context.DeadlineExceeded, and the cause of the context.
var (
	ErrContextFull = exec.ErrContextFull // the tokens do not fit the context of the plan
	ErrNoSequence  = exec.ErrNoSequence  // all sequences of the plan are in use
	ErrWrongModel  = exec.ErrWrongModel  // the plan was compiled for another model
	ErrOutOfMemory = exec.ErrOutOfMemory // the plan needs more memory than is available

	ErrClosed = errors.New("closed")                               // the model or the session was closed
	ErrBusy   = errors.New("in use by another call or generation") // a session takes one call at a time
)

// An OptionError reports a field of Options or Params that the caller has to change.
type OptionError struct {
	Field string // such as "MaxTokens" or "Ctx"; "" if it is about several
	Err   error  // what was found and what is expected

	whole bool // Err names the field
}

func (e *OptionError) Error() string { return e.Text(func(field string) string { return field }) }

func (e *OptionError) Unwrap() error { return e.Err }

// Text returns the error with the caller's name for each field, such as a flag.
func (e *OptionError) Text(name func(field string) string) string {
	var compile *lower.OptionError
	switch {
	case errors.As(e.Err, &compile):
		return compile.Text(name)
	case e.whole || e.Field == "":
		return e.Err.Error()
	}
	return name(e.Field) + " " + e.Err.Error()
}

func optionErrorf(field, format string, args ...any) error {
	return &OptionError{Field: field, Err: fmt.Errorf(format, args...)}
}

// translate converts an error of the imported packages to an error of this package.
func translate(err error) error {
	var compile *lower.OptionError
	var engine *exec.OptionError
	var param *sample.ParamError
	switch {
	case errors.Is(err, exec.ErrEngineClosed), errors.Is(err, exec.ErrClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	case errors.As(err, &param):
		return &OptionError{Field: param.Field, Err: errors.New(param.Text())}
	case errors.As(err, &compile):
		return &OptionError{Field: compile.Field, Err: err, whole: true}
	case errors.As(err, &engine):
		return &OptionError{Field: engine.Field, Err: err, whole: true}
	}
	return err
}

// An InputError reports a file that a plan names and that cannot be used.
type InputError struct {
	Plan  string // path of the plan
	Input string // "model" or "weights"
	Err   error
}

func (e *InputError) Error() string { return fmt.Sprintf("%s: its %s: %s", e.Plan, e.Input, e.Err) }
func (e *InputError) Unwrap() error { return e.Err }
