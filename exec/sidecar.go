package exec

import (
	"encoding/hex"
	"fmt"

	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/gguf/sidecar"
)

// CheckSidecar returns an error unless f is the sidecar that p names: of the same size,
// with the same digest of its header, and with all weights of the plan that are of its type. The
// numbers are not read. For a plan that names none, f is not looked at.
func CheckSidecar(p *plan.Plan, f *sidecar.File) error {
	s := &p.Sidecar
	if *s == (plan.Sidecar{}) {
		return nil
	}
	if f == nil {
		return fmt.Errorf("plan: has weights in %s, which is not open: Options.Sidecar must have it", s.File)
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
	b, _ := e.sidecar.Weight(w.Tensor()) // as CheckSidecar has seen
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
