package lower

import (
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec/plan"
)

// TestFallbacks checks that each step on a reference kernel is listed with its op and the reason
// why no kernel fits.
func TestFallbacks(t *testing.T) {
	for _, c := range []struct {
		name   string
		config tiny.Config
		o      Options
		want   []string // for each group: ops and a part of the reason; empty for no fallbacks
	}{
		{"all fuses", tiny.Config{HeadDim: 32}, Options{}, nil},
		{"all fuses on a device", tiny.Config{HeadDim: 32, Embd: 64}, Options{Target: plan.CUDA}, nil},
		{"heads that no kernel of the device takes", tiny.Config{HeadDim: 12, Embd: 64, Heads: 8, KVHeads: 8, FF: 96}, Options{Target: plan.CUDA},
			[]string{"attention: kernel cuda.attention takes head_dim of a multiple of 8 up to 256, found 12"}},
		{"unfused", tiny.Config{HeadDim: 32}, Options{Passes: "-fuse_attention"},
			[]string{"attn_scores, attn_values, kv_write, rope, softmax: target cpu has no kernel for it"}},
		{"no kernels", tiny.Config{}, Options{Passes: "none"}, []string{"softmax: choose_kernels is switched off"}},
	} {
		res, err := Compile(tinyModel(t, c.config), c.o)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := plan.Summarize(res.Plan).Fallbacks; got != len(res.Fallbacks) {
			t.Errorf("%s: %d fallbacks are listed, the plan has %d", c.name, len(res.Fallbacks), got)
		}
		groups := res.FallbackGroups()
		steps := 0
		for i, g := range groups {
			steps += g.Steps
			if text := strings.Join(g.Ops, ", ") + ": " + g.Why; i >= len(c.want) || !strings.Contains(text, c.want[i]) {
				t.Errorf("%s: found the group %q, expected %q", c.name, text, c.want)
			}
		}
		if len(groups) != len(c.want) || steps != len(res.Fallbacks) {
			t.Errorf("%s: %d groups of %d steps, expected %d of %d", c.name, len(groups), steps, len(c.want), len(res.Fallbacks))
		}
	}
}
