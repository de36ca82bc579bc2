//go:build !libcuda

package cuda_test

import (
	"testing"

	"pesti/exec/cuda"
)

// realDriver returns no driver: this build has none.
func realDriver(*testing.T) (cuda.Driver, int) { return nil, 0 }
