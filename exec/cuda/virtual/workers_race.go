//go:build race

package virtual

// defaultWorkers returns 1 under the race detector. Blocks of a kernel may write the same bits to the same
// address, as those of attention do, which the detector would report as a race.
func defaultWorkers() int { return 1 }
