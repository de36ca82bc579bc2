package conformance

import (
	"bytes"
	"testing"

	"pesti/conformance/metrics"
	"pesti/conformance/testenv"
	"pesti/gguf/sidecar"
	"pesti/lower"
)

// TestFP8AgainstExact reports what caches and matrices in FP8 cost. Its bound is far below the
// effect of any wrong scale or code. E4M3 has three bits of mantissa, so rounding changes a number
// by 2.6 % on average, and a KL divergence of about a hundredth of a nat is expected.
func TestFP8AgainstExact(t *testing.T) {
	for name, tokens := range map[string]int{"demo": 256, testenv.SmolLM2: 100} {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, name)
			ids := m.passage(t)[:tokens]
			w, err := sidecar.Writer(m.file)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := w.Write(&b); err != nil {
				t.Fatal(err)
			}
			weights, err := sidecar.Parse("weights", b.Bytes(), m.file)
			if err != nil {
				t.Fatal(err)
			}
			exact := m.logits(t, ids, lower.Options{Precision: "exact", Ubatch: 64, Threads: 2})
			for _, c := range []struct {
				what string
				o    lower.Options
			}{
				{"caches", lower.Options{KV: "f8_e4m3"}},
				{"matrices", lower.Options{Sidecar: weights}},
			} {
				c.o.Ubatch, c.o.Threads = 64, 2
				var all metrics.Logits
				for i, row := range m.logits(t, ids, c.o) {
					all.Add(exact[i], row)
				}
				mean, top1 := all.MeanKL(), all.Top1()
				t.Logf("%s in FP8, %d tokens: mean KL %.1e, worst %.1e, top-1 %.1f %%", c.what, len(ids), mean, all.MaxKL, 100*top1)
				if !(mean > 1e-5 && mean <= 0.06) || top1 < 0.8 {
					t.Errorf("%s in FP8: mean KL %.1e, top-1 %.1f %%, expected 1e-5 to 0.06 and at least 80 %%", c.what, mean, 100*top1)
				}
			}
		})
	}
}
