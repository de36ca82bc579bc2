package mapped

import "testing"

func TestGuardPassesOtherPanics(t *testing.T) {
	defer func() {
		if p := recover(); p != "mine" {
			t.Errorf("recovered %v, want the panic of the caller", p)
		}
	}()
	Guard("f", func() error { panic("mine") })
}
