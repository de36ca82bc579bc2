//go:build !race

package virtual

import "runtime"

// defaultWorkers returns the default number of blocks that run concurrently.
func defaultWorkers() int { return runtime.GOMAXPROCS(0) }
