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
	Field string // such as "MaxTokens" or "Ctx"; "" where it is about several
	Err   error  // what was found and what is expected

	whole bool // Err names the field
}

func (e *OptionError) Error() string {
	if e.whole || e.Field == "" {
		return e.Err.Error()
	}
	return e.Field + " " + e.Err.Error()
}

func (e *OptionError) Unwrap() error { return e.Err }

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
