//go:build libcuda

package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestStart starts pesti on machines without CUDA, in several ways, and with the virtual device
// behind the library. PESTI_BIN is the folder with pesti, pesti-cuda and, in its folder stub, the
// library.
func TestStart(t *testing.T) {
	bin := os.Getenv("PESTI_BIN")
	if bin == "" {
		t.Fatal("PESTI_BIN is not set, expected the folder with pesti and pesti-cuda")
	}
	pesti := filepath.Join(bin, "pesti")
	library := "LD_LIBRARY_PATH=" + filepath.Join(bin, "stub")
	run := func(env []string, args ...string) (code int, out, says string) {
		cmd := exec.Command(pesti, args...)
		cmd.Env = append(os.Environ(), env...)
		var o, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &o, &e
		cmd.Run()
		return cmd.ProcessState.ExitCode(), o.String(), e.String()
	}
	text := []string{"run", "demo", "-p", "Once upon a time", "-n", "4", "--temp", "0", "--device"}
	for what, c := range map[string]struct {
		env    []string
		device string
		says   string
	}{
		"no libcuda":     {[]string{"LD_LIBRARY_PATH="}, "cuda:0", "pesti: " + filepath.Join(bin, "pesti-cuda") + " cannot start: there is no libcuda.so.1, which comes with the driver of an NVIDIA GPU; use --device virtual\n"},
		"no GPU":         {[]string{library, "CUDASTUB="}, "cuda:0", "pesti: CUDA cannot be used here: error 100, no CUDA-capable device is detected\n"},
		"no such device": {[]string{library, "CUDASTUB=virtual"}, "cuda:1", "pesti: --device cuda:1: there is no device 1, expected a number below 1\n"},
	} {
		if code, out, says := run(c.env, append(text, c.device)...); code != 1 || out != "" || says != c.says {
			t.Errorf("%s: exit code %d, prints %q, says\n%sexpected\n%s", what, code, out, says, c.says)
		}
	}
	wantCode, want, _ := run(nil, append(text, "virtual")...)
	code, got, says := run([]string{library, "CUDASTUB=virtual"}, append(text, "cuda:0")...)
	if code != 0 || wantCode != 0 || want == "" || got != want || says != "" {
		t.Errorf("exit code %d, prints %q, says %q; on the virtual device %d, %q", code, got, says, wantCode, want)
	}

	// Two devices with some of the layers each, and one device together with the CPU.
	for _, c := range [][]string{{"--devices", "2"}, {"--gpu-layers", "2"}} {
		wantCode, want, _ := run(nil, append(append(text, "virtual"), c...)...)
		code, got, says := run([]string{library, "CUDASTUB=virtual", "CUDASTUB_DEVICES=2"}, append(append(text, "cuda:0"), c...)...)
		if code != 0 || wantCode != 0 || want == "" || got != want || says != "" {
			t.Errorf("%q: exit code %d, prints %q, says %q; on the virtual device %d, %q", c, code, got, says, wantCode, want)
		}
	}

	// If a driver's devices have no counters, events measure each step.
	profile, trace := filepath.Join(t.TempDir(), "profile.json"), filepath.Join(t.TempDir(), "trace.json")
	code, got, says = run([]string{library, "CUDASTUB=virtual"}, append(text, "cuda:0", "--profile", profile, "--trace", trace)...)
	if code != 0 || got != want || !strings.Contains(says, "cuda.gated_mlp") {
		t.Errorf("with a profile: exit code %d, prints %q, says %q", code, got, says)
	}
	var report struct {
		Programs []struct {
			Seconds, Rest float64
			Steps         []struct{ Seconds float64 }
		}
	}
	if text, err := os.ReadFile(profile); err != nil {
		t.Error(err)
	} else if err := json.Unmarshal(text, &report); err != nil || len(report.Programs) != 2 {
		t.Errorf("the profile has %d programs: %v", len(report.Programs), err)
	}
	for _, p := range report.Programs {
		sum := p.Rest
		for i, s := range p.Steps {
			if sum += s.Seconds; s.Seconds <= 0 {
				t.Errorf("step %d took %v s", i, s.Seconds)
			}
		}
		if math.Abs(sum-p.Seconds) > 1e-6 || p.Rest < 0 {
			t.Errorf("%v s passed, and steps and the rest took %v", p.Seconds, sum)
		}
	}
	if info, err := os.Stat(trace); err != nil || info.Size() == 0 {
		t.Errorf("the trace: %v", err)
	}
}
