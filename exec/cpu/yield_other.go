//go:build !linux

package cpu

import "runtime"

// yield lets another goroutine have the processor.
func yield() { runtime.Gosched() }
