//go:build !unix

package testenv

import "time"

var start = time.Now()

// ProcessorTime returns the time since the program began, for want of the time that it has spent on
// processors.
func ProcessorTime() time.Duration { return time.Since(start) }
