//go:build !unix

package virtual

import "time"

var start = time.Now()

// processorTime is the time since the program began, where there is nothing better.
func processorTime() time.Duration { return time.Since(start) }
