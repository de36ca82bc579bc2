//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
)

// peakResident returns the peak resident bytes of a process that has ended.
func peakResident(s *os.ProcessState) int64 {
	usage, ok := s.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(usage.Maxrss) // in bytes, elsewhere in KiB: getrusage(2)
	}
	return int64(usage.Maxrss) << 10
}
