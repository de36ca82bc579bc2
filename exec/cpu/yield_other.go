//go:build !linux

package cpu

import "runtime"

// yield lets another goroutine run.
func yield() { runtime.Gosched() }
