package exec

import "errors"

// Errors that callers test for with errors.Is. Users do not see these texts: each error that wraps
// one has its own text with what was found and what was expected.
var (
	ErrClosed       = errors.New("the session is closed")
	ErrEngineClosed = errors.New("the engine is closed")
	ErrContextFull  = errors.New("the context is full")
	ErrNoSequence   = errors.New("no sequence is free")
	ErrWrongModel   = errors.New("the plan is for another model")
	ErrOutOfMemory  = errors.New("not enough memory")
)

// A kindError is an error with its own text. errors.Is matches it to its kind.
type kindError struct {
	kind error
	text string
}

func (e *kindError) Error() string { return e.text }
func (e *kindError) Unwrap() error { return e.kind }

// An OptionError reports a field of Options that the caller has to change.
type OptionError struct {
	Field string
	text  string
}

func (e *OptionError) Error() string { return e.text }

// A memoryError is the error of a device that refused memory. errors.Is matches it to ErrOutOfMemory too.
type memoryError struct{ refused error }

func (e *memoryError) Error() string   { return e.refused.Error() }
func (e *memoryError) Unwrap() []error { return []error{ErrOutOfMemory, e.refused} }
