package exec

import (
	"encoding/hex"
	"errors"
	"fmt"

	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/gguf"
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

// CheckWeights compares the weights of the model f, and of the sidecar if the plan names one, with the digests in
// the plan, after CheckModel and CheckSidecar. It reads all weights, or samples of the model's if the plan has a
// digest of samples.
func CheckWeights(p *plan.Plan, f *gguf.File, side *sidecar.File) error {
	if err := CheckModel(p, f); err != nil {
		return err
	}
	if err := CheckSidecar(p, side); err != nil {
		return err
	}
	want := p.Model.WeightsDigest
	if want == "" {
		return errors.New("the plan has no digest of the weights, expected one to compare with; pesti compile stores one, and a Go program gets it from gguf.File.WeightsDigest")
	}
	found, err := f.WeightsDigest(gguf.SampledDigest(want))
	if err := sameDigest(f.Path, found, want, err); err != nil || p.Sidecar == (plan.Sidecar{}) {
		return err
	}
	found, err = side.WeightsDigest(want)
	return sameDigest(side.Path, found, p.Sidecar.WeightsDigest, err)
}

// sameDigest returns err, or an error if the digest of the weights in a file is not the one of the plan.
func sameDigest(path, found, want string, err error) error {
	if err == nil && found != want {
		return fmt.Errorf("the weights of %s have digest %s, the plan says %s: they changed since it was compiled", path, found, want)
	}
	return err
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
