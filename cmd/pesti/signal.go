package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// A stopped is the cause of a context that a signal ended.
type stopped syscall.Signal

func (s stopped) Error() string { return syscall.Signal(s).String() }

// untilSignal returns a context that the first interrupt or termination signal ends. A second
// signal ends the process at once.
func untilSignal() context.Context {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	got := make(chan os.Signal, 1)
	signal.Notify(got, ends...)
	go func() {
		n, _ := (<-got).(syscall.Signal)
		signal.Stop(got)
		cancel(stopped(n))
	}()
	return ctx
}

// stoppedCode returns the exit code of a verb whose context ended: 128 plus the signal's number, as
// in shells.
func stoppedCode(ctx context.Context) int {
	if s, ok := context.Cause(ctx).(stopped); ok {
		return 128 + int(s)
	}
	return exitInterrupted
}
