//go:build race

package virtual

// defaultWorkers is one under the race detector: blocks of a kernel may write the same bits to the same
// place, as those of attention do, which the detector would take for a fault of ours.
func defaultWorkers() int { return 1 }
