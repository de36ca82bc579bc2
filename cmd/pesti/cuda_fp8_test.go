//go:build !libcuda

package main

import (
	"path/filepath"
	"strings"
	"testing"

	planfile "pesti/exec/plan"
)

// TestFP8OnDevice checks plans for CUDA with FP8 matrices, an FP8 cache, and both: the text is the
// same as on the processor, no step runs on the host, and compare reports the loss.
func TestFP8OnDevice(t *testing.T) {
	dir := t.TempDir()
	weights, path := filepath.Join(dir, "w.safetensors"), filepath.Join(dir, "cuda.plan")
	ok(t, "quantize", demoName, "--type", "fp8_e4m3", "-o", weights)
	prompt := []string{"-p", story, "-n", "6", "--temp", "0"}
	for _, options := range [][]string{
		{"--precision", "exact", "--kv", "fp8"},
		{"--precision", "fast", "--kv", "fp8", "--isa", "sm_89"},
		{"--precision", "fast", "--weights", weights},
		{"--precision", "exact", "--kv", "fp8", "--weights", weights, "--isa", "sm_89"},
	} {
		ok(t, append([]string{"compile", demoName, "--target", "cuda", "-o", path}, options...)...)
		if s := decoded[planfile.Summary](t, "plan", "show", path, "--json"); s.Fallbacks != 0 || s.LaunchesPerLayer != 5 {
			t.Errorf("%q: %d fallbacks, %d launches a layer", options, s.Fallbacks, s.LaunchesPerLayer)
		}
		var onProcessor []string
		for i := 0; i < len(options); i += 2 {
			if options[i] != "--isa" {
				onProcessor = append(onProcessor, options[i:i+2]...)
			}
		}
		want := ok(t, append(append([]string{"run", demoName}, onProcessor...), prompt...)...)
		if got := ok(t, append([]string{"run", path, "--device", "virtual", "--strict"}, prompt...)...); got != want {
			t.Errorf("%q: %q, expected %q", options, got, want)
		}
	}
	got := ok(t, "compare", demoName, demoName, "--kv", "f16", "--but", "device=virtual", "--but", "kv=fp8", "--but", "weights="+weights,
		"-p", story, "--max-kl", "0.06")
	if !strings.Contains(got, "KV cache in f16\n") || !strings.Contains(got, "KV cache in f8_e4m3\n") {
		t.Errorf("compare does not say what is compared:\n%s", got)
	}
}
