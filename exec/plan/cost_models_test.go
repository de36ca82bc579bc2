package plan

import "testing"

// Every kernel has a cost model whose formulas and roles agree with its signature.
func TestWorks(t *testing.T) {
	for i := range kernels {
		sig := &kernels[i]
		w, ok := costModels[sig.Name]
		if !ok {
			t.Errorf("%s has no row in works", sig.Name)
			continue
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
				t.Errorf("%s reads but a part of %s, and works does not say which", sig.Name, o.Role)
			}
		}
	}
	for name := range costModels {
		if _, ok := LookupKernel(name); !ok {
			t.Errorf("works has a row for %q, which is no kernel", name)
		}
	}
}
