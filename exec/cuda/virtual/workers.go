//go:build !race

package virtual

import "runtime"

// defaultWorkers is how many blocks run at the same time where nobody says.
func defaultWorkers() int { return runtime.GOMAXPROCS(0) }
