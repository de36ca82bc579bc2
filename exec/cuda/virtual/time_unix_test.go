//go:build unix

package virtual

import (
	"syscall"
	"time"
)

// processorTime is what the process has spent on processors: other work on the machine does not matter.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
