//go:build unix

package testenv

import (
	"syscall"
	"time"
)

// ProcessorTime returns the time that the process has spent on processors. Other work on the
// machine does not count.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
