package virtual

import (
	"fmt"

	"pesti/exec/cuda"
)

// A Fault is an invalid operation of a kernel. It ends the launch. All later calls on the device return
// the same error, as on a real device.
type Fault struct {
	Kernel        string
	Block, Thread cuda.Dim
	Line          int    // of the PTX
	Text          string // what happened
}

func (f *Fault) Error() string {
	return fmt.Sprintf("virtual device: kernel %s, block (%d,%d,%d), thread (%d,%d,%d), PTX line %d: %s", f.Kernel,
		f.Block.X, f.Block.Y, f.Block.Z, f.Thread.X, f.Thread.Y, f.Thread.Z, f.Line, f.Text)
}
