package plan

import "testing"

// Every kernel has a cost model whose formulas and roles agree with its signature.
func TestCostModels(t *testing.T) {
	for i := range kernels {
		sig := &kernels[i]
		w := &sig.cost
		if w.macs == "" && w.flops == "" {
			t.Errorf("%s counts no operations, expected cost.macs or cost.flops (\"0\" if it only moves data)", sig.Name)
		}
		s := Scope{T: 2, R: 1, S: 1, C: 16, P: 1, Rows: "T", Params: sample(sig)}
		formulas := []string{w.macs, w.flops}
		for _, m := range []map[string]string{w.partial, w.writes} {
			for role, f := range m {
				if sig.Operand(role) == nil {
					t.Errorf("%s has no operand %q", sig.Name, role)
				}
				formulas = append(formulas, f)
			}
		}
		for _, f := range formulas {
			if f == "" {
				continue
			}
			if _, err := s.Eval(f); err != nil {
				t.Errorf("%s: %v", sig.Name, err)
			}
		}
		for _, o := range sig.Operands {
			if _, writes := w.writes[o.Role]; writes != (o.Width != "" && o.Dir.Writes()) {
				t.Errorf("%s: %s is written: %v", sig.Name, o.Role, writes)
			}
			if _, less := w.partial[o.Role]; !less && (o.Gather || o.Width != "") {
				t.Errorf("%s reads only a part of %s, and its cost does not say which", sig.Name, o.Role)
			}
		}
	}
}
