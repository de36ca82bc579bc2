//go:build !unix

package testenv

import "time"

var start = time.Now()

// ProcessorTime returns the time since the program began, because this system does not report
// processor time.
func ProcessorTime() time.Duration { return time.Since(start) }
