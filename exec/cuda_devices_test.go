package exec_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/lower"
)

// several returns a driver with n virtual devices.
func several(n int) *virtual.Driver {
	return virtual.New(virtual.Config{Devices: slices.Repeat([]cuda.Properties{virtual.Default()}, n)})
}

// openOn opens the embedded model on the devices of a driver.
func openOn(t *testing.T, driver cuda.Driver, o lower.Options, numbers ...int) *exec.Engine {
	t.Helper()
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	o.Target = plan.CUDA
	res, err := lower.Compile(m, o)
	if err != nil {
		t.Fatal(err)
	}
	e, err := exec.Open(res.Plan, f, exec.Options{Driver: driver, Devices: numbers, Poison: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// feedAll returns the logits of a prompt with a whole chunk and some more tokens, and of the tokens after
// it, one by one and at the end two by two.
func feedAll(t *testing.T, e *exec.Engine, prompt, more int) [][]float32 {
	t.Helper()
	s, err := exec.NewSession(e)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ids []int32
	for i := range int32(prompt) {
		ids = append(ids, (i*i*37+5)%1500)
	}
	var all [][]float32
	for range more {
		row, err := s.Feed(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, slices.Clone(row))
		ids = []int32{argmax(row)}
	}
	if err := s.FeedLogits(t.Context(), []int32{7, 8}); err != nil {
		t.Fatal(err)
	}
	return append(all, slices.Clone(s.Logits(0)), slices.Clone(s.Logits(1)))
}

// TestSeveralDevicesSameBits checks that layers on two and three devices give the bits of one device, for
// prompts and for single tokens, with and without peer access.
func TestSeveralDevicesSameBits(t *testing.T) {
	type run struct {
		name    string
		devices int
		driver  cuda.Driver
		numbers []int
	}
	for _, c := range []struct {
		precision    string
		prompt, more int
		runs         []run
	}{
		{"fast", 65, 1, []run{{"two", 2, several(2), nil}}},
		{"exact", 9, 3, []run{
			{"two", 2, several(2), nil},
			{"three", 3, several(3), nil},
			{"two without a link, the last one first", 2, islands{several(3)}, []int{2, 0}},
		}},
	} {
		if testing.Short() { // slow under the race detector
			c.prompt = min(c.prompt, 3)
		}
		o := lower.Options{Precision: c.precision, Ctx: 128}
		want := feedAll(t, openOn(t, several(1), o), c.prompt, c.more)
		for _, r := range c.runs {
			o.Devices = r.devices
			e := openOn(t, r.driver, o, r.numbers...)
			if _, apart := r.driver.(islands); apart != (len(e.HostStagedPairs()) > 0) {
				t.Errorf("%s: values go through the host for %v", r.name, e.HostStagedPairs())
			}
			if got := feedAll(t, e, c.prompt, c.more); !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
				t.Errorf("%s: %s devices give other bits than one", c.precision, r.name)
			}
		}
	}
}

// islands is a driver whose devices have no peer access.
type islands struct{ cuda.Driver }

func (d islands) Open(number int) (cuda.Device, error) {
	device, err := d.Driver.Open(number)
	return lonely{device}, err
}

type lonely struct{ cuda.Device }

func (lonely) EnablePeer(cuda.Device) error { return cuda.ErrNoLink }

// TestSeveralDevicesRefuse opens plans on devices that cannot run them. Each error must be one line and must
// leave all devices closed.
func TestSeveralDevicesRefuse(t *testing.T) {
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	res, err := lower.Compile(m, lower.Options{Target: plan.CUDA, Devices: 2})
	if err != nil {
		t.Fatal(err)
	}
	small := virtual.Default()
	small.Memory = 2 << 20
	old := virtual.Default()
	old.Major, old.Minor = 7, 0
	for _, c := range []struct {
		name    string
		devices []cuda.Properties
		numbers []int
		want    []string
	}{
		{"one device", []cuda.Properties{virtual.Default()}, nil, []string{"device 1 of the plan", "no device 1"}},
		{"the last one first", []cuda.Properties{virtual.Default(), virtual.Default()}, []int{1}, []string{"device 1 of the plan", "no device 2"}},
		{"one twice", []cuda.Properties{virtual.Default(), virtual.Default()}, []int{1, 1}, []string{"device 1 of the plan", "open already"}},
		{"too little memory on the second", []cuda.Properties{virtual.Default(), small}, nil, []string{"device 1 of the plan", "needs", "2.0 MiB", "more devices"}},
		{"an older second", []cuda.Properties{virtual.Default(), old}, nil, []string{"device 1 of the plan", "7.0", "instruction set of the device"}},
	} {
		driver := virtual.New(virtual.Config{Devices: c.devices})
		e, err := exec.Open(res.Plan, f, exec.Options{Driver: driver, Devices: c.numbers})
		if err == nil {
			t.Errorf("%s: opened", c.name)
			e.Close()
			continue
		}
		for _, word := range c.want {
			if !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: error %q, expected one line with %q", c.name, err, word)
			}
		}
		for i := range c.devices {
			again, err := driver.Open(i)
			if err != nil {
				t.Errorf("%s: device %d is not free afterwards: %v", c.name, i, err)
				continue
			}
			if p := again.Properties(); p.Free != p.Memory {
				t.Errorf("%s: device %d has %s of memory in use afterwards", c.name, i, plan.HumanBytes(p.Memory-p.Free))
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSeveralDevicesCanceled checks that a canceled pass ends on all devices, and that the next one gives
// the same bits.
func TestSeveralDevicesCanceled(t *testing.T) {
	e := openOn(t, several(2), lower.Options{Ctx: 32, Devices: 2})
	s, err := exec.NewSession(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Feed(t.Context(), []int32{1}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	want := feed(t, s, []int32{2})
	took := time.Since(begin)
	const times = 5
	for i := range times {
		if err := s.Truncate(1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if i == 0 {
			cancel()
		}
		time.AfterFunc(took*time.Duration(i)/times, cancel)
		if _, err := s.Feed(ctx, []int32{2}); err == nil && i > 0 {
			continue // the pass was faster this time
		} else if !errors.Is(err, context.Canceled) || s.Pos() != 1 {
			t.Fatalf("error %v at position %d, expected a canceled pass at 1", err, s.Pos())
		}
		if got := feed(t, s, []int32{2}); !slices.Equal(got, want) {
			t.Fatal("after a canceled pass: logits differ")
		}
	}
}

// TestSeveralDevicesObserve checks that the values of steps on all devices are observed.
func TestSeveralDevicesObserve(t *testing.T) {
	seen := map[string][]string{}
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, devices := range []int{1, 2} {
		res, err := lower.Compile(m, lower.Options{Target: plan.CUDA, Devices: devices, Ctx: 32, Outputs: []string{"blk.*.out"}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := exec.Open(res.Plan, f, exec.Options{Driver: several(devices), Observe: func(o exec.Observation) {
			if !plan.IsTransfer(o.Step.Kernel) {
				key := fmt.Sprint(devices)
				seen[key] = append(seen[key], fmt.Sprint(o.Name, o.Data))
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := exec.NewSession(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Feed(t.Context(), []int32{1, 2}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Value("blk.3.out"); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(seen["1"])
	slices.Sort(seen["2"])
	if len(seen["1"]) == 0 || !slices.Equal(seen["1"], seen["2"]) {
		t.Errorf("%d values on one device, %d on two, expected the same", len(seen["1"]), len(seen["2"]))
	}
}

// TestHostAndDevices checks plans with layers on the CPU, for each number of layers and workers: except for
// rounding, the logits of prompts and of single tokens are those of the CPU, in exact the tokens are the
// same, and the bits do not depend on how a prompt is cut.
func TestHostAndDevices(t *testing.T) {
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	best, err := isa.Best("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		precision       string
		activations     string // that devices round to
		layers, devices int
		isa             string
		threads         int
		bound           float64
	}{
		{"exact", "", 1, 1, "portable", 1, 1e-4},
		{"exact", "", 3, 2, best, 2, 1e-4},
		{"fast", "q8x2", 2, 1, best, 2, 2e-2},
	} {
		res, err := lower.Compile(m, lower.Options{Precision: c.precision, Activations: c.activations, Ctx: 128, ISA: c.isa, Threads: c.threads})
		if err != nil {
			t.Fatal(err)
		}
		e, err := exec.Open(res.Plan, f, exec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := feedAll(t, e, 9, 3)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		both := openOn(t, several(c.devices), lower.Options{Precision: c.precision, Ctx: 128, Devices: c.devices,
			Host: &lower.Host{GPULayers: c.layers, ISA: c.isa, Threads: c.threads}})
		if n := both.Threads(); n != min(c.threads, runtime.GOMAXPROCS(0)) {
			t.Errorf("%+v: %d workers", c, n)
		}
		got := feedAll(t, both, 9, 3)
		worst := 0.0
		for i := range want {
			for k := range want[i] {
				worst = max(worst, math.Abs(float64(got[i][k]-want[i][k])))
			}
			if c.precision == "exact" && argmax(got[i]) != argmax(want[i]) {
				t.Errorf("%+v: row %d has token %d, expected %d", c, i, argmax(got[i]), argmax(want[i]))
			}
		}
		t.Logf("%+v: worst difference of a logit %v", c, worst)
		if !(worst <= c.bound) {
			t.Errorf("%+v: a logit differs by %v, expected at most %v", c, worst, c.bound)
		}
		s, err := exec.NewSession(both)
		if err != nil {
			t.Fatal(err)
		}
		feed := func(parts ...[]int32) []float32 {
			s.Reset()
			var row []float32
			for _, ids := range parts {
				if row, err = s.Feed(t.Context(), ids); err != nil {
					t.Fatal(err)
				}
			}
			return slices.Clone(row)
		}
		if a, b := feed([]int32{1, 2, 3, 4}), feed([]int32{1}, []int32{2, 3}, []int32{4}); !slices.Equal(a, b) {
			t.Errorf("%+v: other bits of a prompt in three parts", c)
		}
	}
}

// TestHostRefuses opens plans with layers on a CPU that cannot run them. The error must be one line and must
// leave the device closed.
func TestHostRefuses(t *testing.T) {
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		isa  string
		o    exec.Options
		want []string
	}{
		{"another processor", "neondot", exec.Options{}, []string{"device 0 of the plan", "neondot", "GPU layers"}},
		{"too many workers", "portable", exec.Options{Threads: 3}, []string{"device 0 of the plan", "3 threads", "1 to the 2"}},
		{"too little memory", "portable", exec.Options{RAM: cpu.RAM{Total: 1 << 20, Available: 1 << 19}}, []string{"device 0 of the plan", "512.0 KiB", "more GPU layers"}},
	} {
		if c.isa == "neondot" && runtime.GOARCH != "amd64" {
			continue
		}
		res, err := lower.Compile(m, lower.Options{Target: plan.CUDA, Host: &lower.Host{GPULayers: 2, ISA: c.isa, Threads: 2}})
		if err != nil {
			t.Fatal(err)
		}
		driver := several(1)
		c.o.Driver = driver
		e, err := exec.Open(res.Plan, f, c.o)
		if err == nil {
			t.Errorf("%s: opened", c.name)
			e.Close()
			continue
		}
		for _, word := range c.want {
			if !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: error %q, expected one line with %q", c.name, err, word)
			}
		}
		if again, err := driver.Open(0); err != nil {
			t.Errorf("%s: the device is not free afterwards: %v", c.name, err)
		} else if p := again.Properties(); p.Free != p.Memory || again.Close() != nil {
			t.Errorf("%s: %s of the device in use afterwards", c.name, plan.HumanBytes(p.Memory-p.Free))
		}
	}
}
