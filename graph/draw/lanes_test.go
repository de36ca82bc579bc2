package draw_test

import (
	"fmt"
	"strings"
	"testing"

	"pesti/conformance/demo"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/graph/draw"
	"pesti/lower"
)

// onDevices compiles the embedded model for a number of devices.
func onDevices(t *testing.T, devices int) *lower.Result {
	t.Helper()
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	res, err := lower.Compile(m, lower.Options{Target: plan.CUDA, Devices: devices, Ctx: 64, Ubatch: 16})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestLanes checks that a picture for several devices has a frame for each device, and that equal
// layers are folded per device.
func TestLanes(t *testing.T) {
	for devices := 1; devices <= 3; devices++ {
		res := onDevices(t, devices)
		for _, o := range []draw.Options{{Layer: -1}, {Layer: -1, All: true}} {
			ofPlan, err := draw.Plan(res.Plan, o)
			if err != nil {
				t.Fatal(err)
			}
			again, err := draw.Plan(res.Plan, o)
			if err != nil || again != ofPlan {
				t.Errorf("%d devices: two pictures of one plan differ (%v)", devices, err)
			}
			ofGraph, err := draw.Graph(res.Fused, o)
			if err != nil {
				t.Fatal(err)
			}
			for d := range 4 {
				want := 0
				if d < devices && devices > 1 {
					want = 1
				}
				if n := strings.Count(ofPlan, fmt.Sprintf(`label="device %d: cuda sm_75`, d)); n != want {
					t.Errorf("%d devices: %d frames of device %d in the plan, expected %d", devices, n, d, want)
				}
				if n := strings.Count(ofGraph, fmt.Sprintf(`label="device %d"`, d)); n != want {
					t.Errorf("%d devices: %d frames of device %d in the graph, expected %d", devices, n, d, want)
				}
			}
			if o.All {
				continue
			}
			for _, label := range map[int][]string{1: {"blocks 0–3"}, 2: {"blocks 0–1", "blocks 2–3"}}[devices] {
				if !strings.Contains(ofPlan, label) {
					t.Errorf("%d devices: no %s in the picture", devices, label)
				}
			}
		}
		chart, err := draw.Memory(res.Plan, draw.Options{Layer: -1})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := chart.Render("svg", &text); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text.String(), "program decode on device"); devices > 1 && n != devices || devices == 1 && n != 0 {
			t.Errorf("%d devices: %d charts of an arena that name a device", devices, n)
		}
	}
}
