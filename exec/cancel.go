package exec

import (
	"context"
	"errors"
	"fmt"

	"pesti/exec/cpu"
)

// ErrNilContext reports a call with a nil context.
var ErrNilContext = errors.New("the context is nil, expected one such as context.Background()")

// cancelOn sets the channel that cancels the forward pass which is about to begin, and resets it to
// nil after the pass.
func (e *Engine) cancelOn(done <-chan struct{}) {
	e.done = done
	e.backend.cancelOn(done)
}

// canceled reports whether the caller of the forward pass in progress has canceled it. Backends
// poll it between the parts of a program; it neither blocks nor allocates.
func (e *Engine) canceled() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// cause returns the error of a forward pass that ctx ended, instead of the backend's error.
func cause(ctx context.Context, err error) error {
	if !errors.Is(err, cpu.ErrCanceled) {
		return err
	}
	return ContextError(ctx, "forward pass")
}

// ContextError returns the error of an operation that the end of ctx stopped. It wraps
// context.Canceled or context.DeadlineExceeded, and the context's cause.
func ContextError(ctx context.Context, what string) error {
	ended, why := ctx.Err(), context.Cause(ctx)
	if why == ended {
		return fmt.Errorf("%s: %w", what, ended)
	}
	return fmt.Errorf("%s: %w: %w", what, ended, why)
}
