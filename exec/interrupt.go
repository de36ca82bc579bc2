package exec

import "pesti/exec/cpu"

// ErrInterrupted is the error of a step that Interrupt ended. It is a context.Canceled.
var ErrInterrupted = cpu.ErrInterrupted

// Interrupt ends the step in progress after the wave it is in: it and all later steps return
// ErrInterrupted. It may be called from any goroutine: context.AfterFunc(ctx, e.Interrupt).
func (e *Engine) Interrupt() { e.backend.interrupt() }
