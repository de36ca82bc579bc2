package exec

import (
	"encoding/hex"
	"fmt"
	"slices"

	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/gguf/sidecar"
)

// CheckSidecar returns an error unless f is the file beside the model that p names: of the same size,
// with the same digest of its header, and with all weights of the plan that are of its type. The
// numbers are not read. For a plan that names none, f is not looked at.
func CheckSidecar(p *plan.Plan, f *sidecar.File) error {
	s := &p.Sidecar
	if *s == (plan.Sidecar{}) {
		return nil
	}
	if f == nil {
		return fmt.Errorf("plan: has weights in %s, which is not open; give it with --weights", s.File)
	}
	sum := f.Digest()
	if found := "sha256:" + hex.EncodeToString(sum[:]); f.Size != s.Size || found != s.Directory {
		return fmt.Errorf("%s: is not the file that the plan was compiled with: has %d bytes and header %s, expected %d and %s; compile the model again with --weights", f.Path, f.Size, found, s.Size, s.Directory)
	}
	for i := range p.Weights {
		w := &p.Weights[i]
		if w.Type != plan.SidecarType {
			continue
		}
		b, ok := f.Weight(w.Name)
		if !ok {
			return fmt.Errorf("%s: has no tensor %q, which the plan reads", f.Path, w.Name)
		}
		if dims := []int64{b.Rows, b.Cols}; !slices.Equal(dims, w.Dims) || b.Size() != w.Size {
			return fmt.Errorf("%s: tensor %q: is %v of %d bytes, but the plan is for %v of %d", f.Path, w.Name, dims, b.Size(), w.Dims, w.Size)
		}
	}
	return nil
}

// besideOperand returns a weight that lies in the file beside the model's.
func (e *Engine) besideOperand(w *plan.Weight) (kernel.Operand, error) {
	b, _ := e.beside.Weight(w.Name) // as CheckSidecar has seen
	codes := e.beside.Codes(b)
	scales, err := e.beside.Scales(b)
	if err == nil && int64(len(codes)) != b.Rows*b.Cols {
		err = fmt.Errorf("%s: tensor %q: the file is closed, expected it to be open", e.beside.Path, w.Name)
	}
	return kernel.Operand{Format: w.Type, Data: codes, Scales: scales}, err
}
