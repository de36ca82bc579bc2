package cpu

import "golang.org/x/sys/unix"

// yield lets another thread have the processor. It keeps the Go scheduler out of it: to
// reschedule a goroutine that is locked to its thread takes two context switches.
func yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
