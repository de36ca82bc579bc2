package exec

import (
	"encoding/hex"
	"fmt"

	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/gguf/sidecar"
)

// CheckSidecar returns an error unless f is the sidecar that p names: it must have the same size
// and the same digest of its header, and all weights of the plan that have its type. It does not
// read the weights. It ignores f if p names no sidecar.
func CheckSidecar(p *plan.Plan, f *sidecar.File) error {
	s := &p.Sidecar
	if *s == (plan.Sidecar{}) {
		return nil
	}
	if f == nil {
		return fmt.Errorf("plan: has weights in %s, which is not open, expected it in Options.Sidecar", s.File)
	}
	sum := f.Digest()
	if found := "sha256:" + hex.EncodeToString(sum[:]); f.Size != s.Size || found != s.HeaderDigest {
		return fmt.Errorf("%s: is not the file that the plan was compiled with: has %d bytes and header %s, expected %d and %s; compile the model again with this file", f.Path, f.Size, found, s.Size, s.HeaderDigest)
	}
	for i := range p.Weights {
		w := &p.Weights[i]
		if w.Type != plan.SidecarType {
			continue
		}
		if err := checkSidecarWeight(w, f); err != nil {
			return err
		}
	}
	return nil
}

// sidecarOperand returns a weight of the sidecar.
func (e *Engine) sidecarOperand(w *plan.Weight) (kernel.Operand, error) {
	b, _ := e.sidecar.Weight(w.Tensor()) // CheckSidecar has checked it
	codes := e.sidecar.Codes(b)
	scales, err := e.sidecar.Scales(b)
	if err == nil && int64(len(codes)) != b.Rows*b.Cols {
		err = fmt.Errorf("%s: tensor %q: the file is closed, expected it to be open", e.sidecar.Path, w.Name)
	}
	if err != nil {
		return kernel.Operand{}, err
	}
	return kernel.Operand{Format: w.Type, Data: part(w, codes), Scales: scalesOf(w, scales)}, nil
}
