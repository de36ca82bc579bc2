//go:build !libcuda

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	planfile "pesti/exec/plan"
)

// TestCheckOnDevice compares every program on the virtual device with gorgonia's float64, with the bounds of the
// processor.
func TestCheckOnDevice(t *testing.T) {
	for _, precision := range []string{"exact", "fast"} {
		ok(t, "check", "demo", "--device", "virtual", "--precision", precision, "--ids", "1,20,300,4,5")
	}
}

// TestRunOnDevice: a plan for CUDA devices has no fallbacks and five launches a layer, and its text is
// the processor's.
func TestRunOnDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cuda.plan")
	ok(t, "compile", "demo", "--target", "cuda", "--precision", "exact", "-o", path)
	args := []string{"-p", story, "-n", "6", "--temp", "0"}
	want := ok(t, append([]string{"run", "demo", "--precision", "exact"}, args...)...)
	r := pesti(append([]string{"run", path, "--device", "virtual", "--strict", "--stats", "json"}, args...)...)
	if r.code != 0 || r.out != want {
		t.Errorf("exit code %d, text %q, expected %q: %s", r.code, r.out, want, r.err)
	}
	var stats runStats
	if err := json.Unmarshal([]byte(r.err), &stats); err != nil || stats.Fallbacks != 0 || stats.Launches != 5 {
		t.Errorf("%d fallbacks and %d launches a layer, expected 0 and 5: %s", stats.Fallbacks, stats.Launches, r.err)
	}
	for _, flags := range [][]string{{"--seed", "3"}, {"--seed", "3", "--top-k", "0"}, {"--seed", "4", "--repeat-penalty", "1.2"}} {
		args := append([]string{"-p", story, "-n", "4"}, flags...)
		want := ok(t, append([]string{"run", "demo", "--precision", "exact"}, args...)...)
		if got := ok(t, append([]string{"run", path, "--device", "virtual"}, args...)...); got != want {
			t.Errorf("%q: text %q, expected %q", flags, got, want)
		}
	}
	s := decoded[planfile.Summary](t, "plan", "show", path, "--json")
	if s.Backend != "cuda" || s.ISA != "sm_75" || s.Fallbacks != 0 || s.LaunchesPerLayer != 5 {
		t.Errorf("plan show: %s %s, %d fallbacks, %d launches a layer", s.Backend, s.ISA, s.Fallbacks, s.LaunchesPerLayer)
	}
}

// TestRunOnDevices checks that a plan for two devices gives the text of one device, for each way to
// name them, and that plan show lists each device and link.
func TestRunOnDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "two.plan")
	ok(t, "compile", "demo", "--target", "cuda", "--devices", "2", "-o", path)
	args := []string{"-p", story, "-n", "3", "--temp", "0", "--strict"}
	want := ok(t, append([]string{"run", "demo", "--device", "virtual"}, args...)...)
	for _, run := range [][]string{
		{"run", path, "--device", "virtual"},
		{"run", path, "--device", "virtual:1,virtual:0"},
		{"run", "demo", "--device", "virtual", "--devices", "3"},
	} {
		if got := ok(t, append(run, args...)...); got != want {
			t.Errorf("%q: text %q, expected %q", run, got, want)
		}
	}
	s := decoded[planfile.DeviceBreakdown](t, "plan", "show", path, "--json")
	if len(s.Devices) != 2 || len(s.Links) != 1 || s.Links[0].Token != 1024 || !(s.Speedup.Token > 1 && s.Speedup.Token <= 2) {
		t.Errorf("plan show --json: %+v", s)
	}
	text := ok(t, "plan", "show", path)
	for _, row := range []string{"0, cuda sm_75", "1, cuda sm_75", "0 → 1", "ideal speed-up"} {
		if !strings.Contains(text, row) {
			t.Errorf("plan show has no %q:\n%s", row, text)
		}
	}
	if dot := ok(t, "dot", path); !strings.Contains(dot, `label="device 1: cuda sm_75`) {
		t.Error("the picture has no lane for device 1")
	}
}

// TestRunWithHostLayers checks that a plan with layers on the processor has no fallbacks and gives the processor's
// text, and that with more GPU layers than the model has, it is the plan for the device alone.
func TestRunWithHostLayers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "both.plan")
	ok(t, "compile", "demo", "--target", "cuda", "--gpu-layers", "2", "--precision", "exact", "-t", "2", "-o", path)
	args := []string{"-p", story, "-n", "4", "--temp", "0"}
	want := ok(t, append([]string{"run", "demo", "--precision", "exact"}, args...)...)
	for _, threads := range []string{"1", "2"} {
		if got := ok(t, append([]string{"run", path, "--device", "virtual", "--strict", "--threads", threads}, args...)...); got != want {
			t.Errorf("%s threads: text %q, expected %q", threads, got, want)
		}
	}
	s := decoded[planfile.DeviceBreakdown](t, "plan", "show", path, "--json")
	if len(s.Devices) != 2 || s.Devices[0].Backend != "cpu" || s.Devices[1].Backend != "cuda" || len(s.Links) != 2 {
		t.Errorf("plan show --json: %+v", s)
	}
	all := ok(t, "compile", "demo", "--target", "cuda", "--gpu-layers", "5", "-o", "-")
	if alone := ok(t, "compile", "demo", "--target", "cuda", "-o", "-"); all != alone {
		t.Error("with all layers on the device, the plan is another one than without the option")
	}
}

// TestDumpOnDevice checks that a device writes the same files with the same shapes as the
// processor.
func TestDumpOnDevice(t *testing.T) {
	var names [2][]string
	for i, args := range [][]string{nil, {"--target", "cuda", "--device", "virtual"}} {
		dir := t.TempDir()
		ok(t, append([]string{"dump", "demo", "--ids", "1,2,3", "-o", dir}, args...)...)
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := e.Name()
			if filepath.Ext(name) == ".npy" {
				name += fmt.Sprint(" ", readNpy(t, filepath.Join(dir, name)).shape)
			}
			names[i] = append(names[i], name)
		}
	}
	if !slices.Equal(names[0], names[1]) || len(names[0]) < 6 {
		t.Errorf("on the device %q, on the processor %q", names[1], names[0])
	}
}

// TestCompareAcrossTargets compares a plan for the processor with a plan for the device that
// --device names.
func TestCompareAcrossTargets(t *testing.T) {
	dir := t.TempDir()
	cpu, cuda := filepath.Join(dir, "cpu.plan"), filepath.Join(dir, "cuda.plan")
	for path, target := range map[string]string{cpu: "cpu", cuda: "cuda"} {
		ok(t, "compile", "demo", "--target", target, "--precision", "exact", "--ctx", "64", "-o", path)
	}
	for _, names := range [][]string{{cpu, cuda}, {cuda, cpu}} {
		ok(t, "compare", names[0], names[1], "--device", "virtual", "--ids", "1,2,3", "--max-d", "1e-4")
	}
	pesti("compare", cpu, cpu, "--device", "virtual", "--ids", "1").fails(t, 1, "is for the CPU")
}

// TestDeviceErrors checks that a mismatch of plan, target and device is a one-line error.
func TestDeviceErrors(t *testing.T) {
	dir := t.TempDir()
	cpu, cuda, two := filepath.Join(dir, "cpu.plan"), filepath.Join(dir, "cuda.plan"), filepath.Join(dir, "two.plan")
	ok(t, "compile", "demo", "--target", "cuda", "--devices", "2", "-o", two)
	ok(t, "compile", "demo", "-o", cpu)
	ok(t, "compile", "demo", "--target", "cuda", "-o", cuda)
	missing := map[string]string{reexecVariable: filepath.Join(dir, "none")}
	for _, c := range []struct {
		code int
		args []string
		want []string
	}{
		{1, []string{"run", cpu, "--device", "virtual"}, []string{cpu, "for target cuda"}},
		{2, []string{"run", cuda, "--device", "cpu"}, []string{cuda, "virtual"}},
		{1, []string{"run", cuda}, []string{"none", "--device virtual"}},
		{1, []string{"run", "demo", "--target", "cuda"}, []string{"none", "--device virtual"}},
		{2, []string{"run", "demo", "--device", "virtual:64"}, []string{"virtual:64", "below 64"}},
		{2, []string{"run", cuda, "--device", "virtual:64"}, []string{"virtual:64", "below 64"}},
		{2, []string{"run", two, "--device", "virtual:63"}, []string{"virtual:64", "below 64"}},
		{2, []string{"run", cuda, "--device", "virtual:0,virtual:1"}, []string{cuda, "names 2 devices", "at most 1"}},
		{2, []string{"run", "demo", "--device", "virtual:0,cuda:1"}, []string{"virtual:0,cuda:1", "cuda:N"}},
		{2, []string{"run", "demo", "--device", "virtual", "--devices", "0"}, []string{"--devices", "1 or more"}},
		{2, []string{"run", "demo", "--device", "virtual", "--devices", "9"}, []string{"--devices 9", "4 layers"}},
		{2, []string{"run", "demo", "--device", "virtual", "--gpu-layers", "0"}, []string{"--gpu-layers", "1 or more"}},
		{2, []string{"run", "demo", "--device", "virtual", "--gpu-layers", "-1"}, []string{"--gpu-layers", "1 or more"}},
		{2, []string{"run", "demo", "--gpu-layers", "1"}, []string{"--gpu-layers is 1", "--target cuda"}},
		{2, []string{"run", "demo", "--devices", "2"}, []string{"--devices is 2", "--target is cpu"}},
		{2, []string{"run", two, "--device", "virtual", "--devices", "2"}, []string{"--devices", two, "compiled already"}},
		{2, []string{"run", "demo", "--device", "virtual", "--target", "cpu"}, []string{"--target", "virtual"}},
		{2, []string{"run", "demo", "--device", "virtual", "--isa", "avx2"}, []string{"avx2", "sm_75"}},
		{2, []string{"run", "demo", "--isa", "sm_80"}, []string{"sm_80", "--target cuda"}},
		{2, []string{"run", "demo", "--device", "virtual", "--kv", "q8_0"}, []string{"q8_0", "f16"}},
		{1, []string{"run", "demo", "--device", "virtual", "--passes", "none", "--strict"}, []string{"fallbacks", "ref."}},
	} {
		call{args: append(c.args, "-p", story, "-n", "1"), env: missing}.run().fails(t, c.code, c.want...)
	}
}
