package lower

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/graph"
	"pesti/graph/graphtest"
	"pesti/graph/pass"
)

// TestSplitLayers checks a plan for several devices: each device has consecutive whole layers, as
// even as their bytes allow, with one transfer at each boundary, and the plan's text parses to the
// same plan.
func TestSplitLayers(t *testing.T) {
	one := compileCUDA(t, Options{Ctx: 64})
	for devices := 2; devices <= 4; devices++ {
		p := compileCUDA(t, Options{Ctx: 64, Devices: devices})
		if len(p.Devices) != devices {
			t.Fatalf("%d devices, expected %d", len(p.Devices), devices)
		}
		for i := range p.Programs {
			at, crossed, steps := 0, 0, 0
			for _, w := range p.Programs[i].Waves {
				st := &w.Steps[0]
				if st.Device < at {
					t.Errorf("%d devices: step %s is on device %d behind one on %d", devices, st.Name, st.Device, at)
				}
				if plan.IsTransfer(st.Kernel) {
					crossed++
				} else {
					steps++
				}
				at = st.Device
			}
			if n := plan.Summarize(one).Programs[p.Programs[i].Name].Steps; crossed != devices-1 || steps != n {
				t.Errorf("%d devices: program %s has %d transfers and %d other steps, expected %d and %d", devices, p.Programs[i].Name, crossed, steps, devices-1, n)
			}
		}
		s := plan.Summarize(p)
		if s.Fallbacks != 0 || s.LaunchesPerLayer != 5 {
			t.Errorf("%d devices: %d fallbacks, %d launches a layer, expected 0 and 5", devices, s.Fallbacks, s.LaunchesPerLayer)
		}
		text := plan.Print(p)
		again, err := plan.Parse(text)
		if err != nil {
			t.Fatalf("%d devices: %v\n%s", devices, err, text)
		}
		if string(plan.Print(again)) != string(text) {
			t.Errorf("%d devices: the text gives another plan", devices)
		}
		if d := plan.Diff(p, again); len(d) != 0 {
			t.Errorf("%d devices: the plan differs from itself: %v", devices, d)
		}
	}
}

// TestDevicesMistakes checks that an invalid number of devices is a one-line error about the
// option.
func TestDevicesMistakes(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Target: plan.CUDA, Devices: -1}, "Devices is -1, expected 1 to 64"},
		{Options{Target: plan.CUDA, Devices: 65}, "Devices is 65, expected 1 to 64"},
		{Options{Target: plan.CUDA, Devices: 9}, "9 devices for 4 layers"},
		{Options{Target: "cpu", Devices: 2}, "Devices is 2, expected 1, since Target is cpu"},
		{Options{Target: plan.CUDA, Devices: 2, Split: "rows"}, `Split is "rows", expected layers or tensor, since Target is cuda`},
	} {
		_, err := Compile(demoModel(t), c.o)
		var about *OptionError
		if !errors.As(err, &about) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: error %v, expected %q", c.o, err, c.want)
		}
	}
}

// TestDevicesFaults breaks plans for two devices in ways that only the checks for such plans find.
func TestDevicesFaults(t *testing.T) {
	step := func(p *plan.Plan, kernel string, device int) *plan.Step {
		for _, w := range p.Programs[0].Waves {
			if st := &w.Steps[0]; st.Kernel == kernel && st.Device == device {
				return st
			}
		}
		t.Fatalf("no step %s on device %d", kernel, device)
		return nil
	}
	buffer := func(p *plan.Plan, class plan.Class, device int) *plan.Buffer {
		for _, list := range [][]plan.Buffer{p.Buffers, p.Programs[0].Buffers} {
			if i := slices.IndexFunc(list, func(b plan.Buffer) bool { return b.Class == class && b.Device == device }); i >= 0 {
				return &list[i]
			}
		}
		t.Fatalf("no %s on device %d", class, device)
		return nil
	}
	for _, c := range []struct {
		name, want string
		ruin       func(p *plan.Plan)
	}{
		{"a step elsewhere", "is on device 1, expected device 0", func(p *plan.Plan) { step(p, "cuda.attention", 1).Device = 0 }},
		{"a step on no device", "is on device 2, expected one from 0 to 1", func(p *plan.Plan) { step(p, "cuda.attention", 1).Device = 2 }},
		{"a negative device", "is on device -1, expected one from 0 to 1", func(p *plan.Plan) { step(p, "cuda.embed", 0).Device = -1 }},
		{"a value elsewhere", "is on device 0, expected device 1", func(p *plan.Plan) { buffer(p, plan.Arena, 1).Device = 0 }},
		{"a cache elsewhere", "is on device 0, expected device 1", func(p *plan.Plan) { buffer(p, plan.State, 1).Device = 0 }},
		{"a table elsewhere", "is on device 0, expected device 1", func(p *plan.Plan) { buffer(p, plan.Table, 1).Device = 0 }},
		{"logits elsewhere", "is on device 0, expected device 1", func(p *plan.Plan) { buffer(p, plan.IO, 1).Device = 0 }},
		{"an input elsewhere", "is on device 1, expected no device", func(p *plan.Plan) { p.Buffers[0].Device = 1 }},
		{"a cache nowhere", "is on device 7, expected one from 0 to 1", func(p *plan.Plan) { buffer(p, plan.State, 1).Device = 7 }},
		{"a value nowhere", "is on device 7, expected one from 0 to 1", func(p *plan.Plan) { buffer(p, plan.Arena, 1).Device = 7 }},
		{"a weight elsewhere", "is on [0], expected device 1", func(p *plan.Plan) {
			for i := range p.Weights {
				if slices.Equal(p.Weights[i].Devices, []int{1}) {
					p.Weights[i].Devices = nil
					return
				}
			}
		}},
		{"a weight that nobody reads there", "no step on device 1 reads it", func(p *plan.Plan) { p.Weights[2].Devices = []int{0, 1} }},
		{"a weight nowhere", "is on device 9, expected one from 0 to 1", func(p *plan.Plan) { p.Weights[2].Devices = []int{0, 9} }},
		{"a weight twice", "is on device 1 twice", func(p *plan.Plan) { p.Weights[2].Devices = []int{1, 1} }},
		{"a weight in no order", "expected devices in ascending order", func(p *plan.Plan) { p.Weights[2].Devices = []int{1, 0} }},
		{"another set", "is sm_80 with threads 1, expected sm_75", func(p *plan.Plan) { p.Devices[1].ISA = "sm_80" }},
		{"a host behind", `backend is "cpu", expected "cuda"`, func(p *plan.Plan) { p.Devices[1].Backend = "cpu" }},
		{"another backend", `backend is "metal"`, func(p *plan.Plan) { p.Devices[0].Backend = "metal" }},
		{"one device", "devices is 1, expected 2 to 64", func(p *plan.Plan) { p.Devices = p.Devices[:1] }},
		{"an idle device", "device 2: runs no step", func(p *plan.Plan) { p.Devices = append(p.Devices, p.Devices[1]) }},
		{"a sum", "device 1: memory: arena is", func(p *plan.Plan) { p.Devices[1].Memory.Arena += 64 }},
		{"the sum of all", "memory: state is", func(p *plan.Plan) { p.Memory.State++ }},
		{"a kernel that crosses", "is on device 0, expected device 1", func(p *plan.Plan) { step(p, "transfer", 1).Kernel = "cuda.copy" }},
		{"overlapping values", "overlap", func(p *plan.Plan) {
			live := p.Programs[0].Buffers
			for i := range live {
				if live[i].Device == 1 {
					live[i].Offset = 0
				}
			}
		}},
	} {
		p := compileCUDA(t, Options{Ctx: 64, Devices: 2})
		c.ruin(p)
		if err := plan.Verify(p); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, expected %q", c.name, err, c.want)
		}
	}
	p := compileCUDA(t, Options{Ctx: 64})
	st := step(p, "cuda.select", 0)
	st.Kernel = "transfer"
	if err := plan.Verify(p); err == nil || !strings.Contains(err.Error(), "expected none in a plan for one device") {
		t.Errorf("a transfer in a plan for one device: error %v", err)
	}
}

// TestSpread checks the breakdown by devices and links: one value per token crosses a boundary, and
// the devices together have and read what a single device does, plus what both need.
func TestSpread(t *testing.T) {
	alone, err := plan.DeviceBreakdownOf(compileCUDA(t, Options{Ctx: 64}))
	if err != nil {
		t.Fatal(err)
	}
	if len(alone.Devices) != 1 || len(alone.Links) != 0 || alone.Speedup != (plan.Speedup{Token: 1, Prompt: 1}) {
		t.Errorf("one device: %+v", alone)
	}
	for devices := 2; devices <= 3; devices++ {
		p := compileCUDA(t, Options{Ctx: 64, Devices: devices})
		s, err := plan.DeviceBreakdownOf(p)
		if err != nil {
			t.Fatal(err)
		}
		const hidden = 256 * 4 // bytes of the residual stream
		for i, l := range s.Links {
			if l != (plan.LinkShare{From: i, To: i + 1, Token: hidden, Prompt: hidden}) {
				t.Errorf("%d devices: link %d is %+v", devices, i, l)
			}
		}
		var read, macs, state int64
		for i := range s.Devices {
			read, macs, state = read+s.Devices[i].Read, macs+s.Devices[i].MACs, state+s.Devices[i].Memory.State
		}
		const token = 4 // bytes of a token id that a device takes from its own argmax
		if one := &alone.Devices[0]; len(s.Links) != devices-1 || read != one.Read-token || macs != one.MACs || state != one.Memory.State {
			t.Errorf("%d devices: %d links, %d bytes read, %d products, %d bytes of caches, expected %d, %d, %d, %d",
				devices, len(s.Links), read, macs, state, devices-1, one.Read-token, one.MACs, one.Memory.State)
		}
		if up := s.Speedup; up.Token <= 1 || up.Token > float64(devices) || up.Prompt <= 1 || up.Prompt > float64(devices) {
			t.Errorf("%d devices: ideal speed-up %+v", devices, up)
		}
	}
}

// TestHost checks a plan with layers on the processor, with any passes switched off: the first
// layers, the embedding and the output run there with CPU kernels, and the last layers run on
// devices.
func TestHost(t *testing.T) {
	for _, precision := range []string{"exact", "fast"} {
		for layers := 1; layers <= 5; layers++ {
			p := compileCUDA(t, Options{Ctx: 128, Precision: precision, Devices: 1, Host: &Host{GPULayers: layers, ISA: "avx2", Threads: 3}})
			if layers == 5 { // more layers than the model has
				if len(p.Devices) != 0 {
					t.Errorf("%d layers: %d devices, expected one", layers, len(p.Devices))
				}
				continue
			}
			if s := plan.Summarize(p); s.Fallbacks != 0 || len(p.Devices) != 2 || p.Devices[0].Backend != "cpu" || p.Devices[0].ISA != "avx2" || p.Devices[0].Threads != 3 {
				t.Errorf("%d layers: %d fallbacks, devices %+v", layers, s.Fallbacks, p.Devices)
			}
			for i := range p.Programs {
				crossed := 0
				for _, w := range p.Programs[i].Waves {
					for k := range w.Steps {
						st := &w.Steps[k]
						onCard := st.Layer >= 4-layers
						switch {
						case plan.IsTransfer(st.Kernel):
							crossed++
						case st.Kernel == "cuda.select": // selects rows on the device of its operand
						case onCard != (st.Device == 1) || onCard != plan.IsCUDAKernel(st.Kernel):
							t.Errorf("%d layers: step %s (%s) is on device %d", layers, st.Name, st.Kernel, st.Device)
						}
					}
				}
				if crossed != 2 {
					t.Errorf("%d layers: program %s has %d transfers, expected 2", layers, p.Programs[i].Name, crossed)
				}
			}
			if again, err := plan.Parse(plan.Print(p)); err != nil || len(plan.Diff(p, again)) != 0 {
				t.Errorf("%d layers: the text gives another plan (%v)", layers, err)
			}
		}
	}
	// The diff reports differences of devices.
	for what, other := range map[string]*Host{"instruction set: portable → avx2": {GPULayers: 2, ISA: "avx2"}, "threads: 1 → 2": {GPULayers: 2, Threads: 2}} {
		a, b := compileCUDA(t, Options{Ctx: 64, Host: &Host{GPULayers: 2}}), compileCUDA(t, Options{Ctx: 64, Host: other})
		if !slices.ContainsFunc(plan.Diff(a, b), func(d plan.Difference) bool { return d.Place == "device 0" && d.String() == what }) {
			t.Errorf("no difference %q: %v", what, plan.Diff(a, b))
		}
	}
	three := compileCUDA(t, Options{Ctx: 64, Devices: 2, Host: &Host{GPULayers: 3}})
	if len(three.Devices) != 3 || three.Devices[0].ISA != "portable" {
		t.Errorf("devices %+v, expected the host and two", three.Devices)
	}
	compileCUDA(t, Options{Ctx: 64, Passes: "none", Host: &Host{GPULayers: 2}})
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Target: plan.CUDA, Host: &Host{GPULayers: 0}}, "GPULayers is 0, expected at least 1"},
		{Options{Target: plan.CUDA, Host: &Host{GPULayers: -1}}, "GPULayers is -1, expected at least 1"},
		{Options{Target: "cpu", Host: &Host{GPULayers: 1}}, "GPULayers is 1, expected Target cuda with it"},
		{Options{Target: plan.CUDA, Devices: 3, Host: &Host{GPULayers: 2}}, "Devices is 3, expected at most 2"},
		{Options{Target: plan.CUDA, Devices: 2, Split: "tensor", Host: &Host{GPULayers: 2}}, "Split is tensor, expected layers"},
	} {
		_, err := Compile(demoModel(t), c.o)
		var about *OptionError
		if !errors.As(err, &about) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: error %v, expected %q", c.o, err, c.want)
		}
	}
}

// TestSplitLayersKeepsMeaning assigns the layers of random models to devices, before any of the
// passes, and compares the outputs with the unsplit model bit by bit.
func TestSplitLayersKeepsMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		g, err := m.Graph(frontend.Bounds{Tokens: 12, Sequences: 2, Rows: 4, Context: 32})
		if err != nil {
			t.Fatal(err)
		}
		_ = markOutputs(g, []string{"blk.*.out"})
		steps, weights := graphtest.Steps(t, g, 2), graphtest.FromFile(m.File)
		layers := len(m.Params.Layers)
		devices, onHost := rapid.IntRange(1, layers).Draw(t, "devices"), -1
		if rapid.Bool().Draw(t, "host") {
			onHost = rapid.IntRange(0, layers-1).Draw(t, "on the host")
			devices = 1 + rapid.IntRange(1, layers-onHost).Draw(t, "devices")
		}
		at := rapid.IntRange(0, len(pass.Graph())).Draw(t, "at")
		var results [2]*graph.Graph
		for i, with := range [][]pass.Pass{nil, {pass.SplitLayers(devices, onHost)}} {
			results[i] = g.Clone()
			if _, err := pass.Run(results[i], slices.Insert(pass.Graph(), at, with...), pass.Options{Verify: true}); err != nil {
				t.Fatal(err)
			}
		}
		want, err := graphtest.Eval(results[0], weights, steps, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := graphtest.Eval(results[1], weights, steps, false)
		if err != nil {
			t.Fatal(err)
		}
		for i := range steps {
			for _, v := range g.Outputs {
				if !slices.Equal(got[i][v.Name].F32, want[i][v.Name].F32) {
					t.Fatalf("step %d: other bits of %s\n%s", i, v.Name, graph.Print(results[1]))
				}
			}
		}
		used := make([]bool, devices)
		for _, n := range results[1].Nodes {
			used[n.Device] = true
		}
		if slices.Contains(used, false) {
			t.Fatalf("devices in use: %v\n%s", used, graph.Print(results[1]))
		}
	})
}
