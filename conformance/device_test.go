package conformance

import (
	"fmt"
	"testing"

	"pesti/conformance/metrics"
	"pesti/conformance/testenv"
	"pesti/exec/plan"
	"pesti/lower"
)

// A deviceCase is a prompt that runs on virtual devices. More than one split every matrix.
type deviceCase struct {
	name, prompt string
	tokens       int // of the prompt, 0 for all
	devices      int
}

// TestDeviceAgainstOracle checks CUDA kernels on the virtual device, in precision exact, with the
// bounds of the CPU kernels: every layer and logit of the embedded model, for a prompt longer than
// one chunk.
func TestDeviceAgainstOracle(t *testing.T) {
	checkDevice(t, []deviceCase{
		{"demo", "fox", 0, 1},
		{"demo", "tides", 0, 1},
		{"demo", "tides", 0, 2},
	})
}

// TestProveDeviceAgainstOracle checks as many tokens of real models as time allows.
func TestProveDeviceAgainstOracle(t *testing.T) {
	testenv.Prove(t)
	checkDevice(t, []deviceCase{
		{testenv.SmolLM2, "fox", 3, 1},
		{testenv.Qwen, "fox", 1, 1},
		{testenv.Gemma, "fox", 1, 1},
		{testenv.SmolLM2, "fox", 1, 3},
	})
}

func checkDevice(t *testing.T, cases []deviceCase) {
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s/%s/%d", c.name, c.prompt, c.devices), func(t *testing.T) {
			m := openModel(t, c.name)
			ids := m.prompt(t, c.prompt)
			if c.tokens > 0 {
				ids = ids[:c.tokens]
			}
			o := lower.Options{Target: plan.CUDA, Ubatch: 64, Devices: c.devices}
			if c.devices > 1 {
				o.Split = "tensor"
			}
			ours := m.collect(t, ids, o, len(ids), nil, nil)
			v := compare(ours, askOracle(t, m.path, ids, 0))
			t.Log(v)
			if !v.passes() {
				t.Errorf("%d tokens: %v", len(ids), v)
			}
		})
	}
}

// TestDeviceFastAgainstExact bounds the loss of precision fast on the virtual device, with the
// bound of the CPU, for single tokens and for chunks.
func TestDeviceFastAgainstExact(t *testing.T) {
	m := openModel(t, "demo")
	ids := m.prompt(t, "tides")
	exact := m.logits(t, ids, lower.Options{Precision: "exact", Ubatch: 64, Threads: 2})
	for _, ubatch := range []int64{1, 64} {
		var all metrics.Logits
		for i, fast := range m.logits(t, ids, lower.Options{Target: plan.CUDA, Precision: "fast", Ubatch: ubatch, Rows: ubatch}) {
			all.Add(exact[i], fast)
		}
		mean, top1 := all.MeanKL(), all.Top1()
		t.Logf("ubatch %d: mean KL %.1e, worst %.1e, top-1 %.2f %%", ubatch, mean, all.MaxKL, 100*top1)
		if !(mean <= 1e-4) || top1 < 0.995 {
			t.Errorf("ubatch %d: mean KL %.1e, top-1 %.2f %%, want at most 1e-4 and at least 99.5 %%", ubatch, mean, 100*top1)
		}
	}
}
