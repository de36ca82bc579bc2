package exec_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
	"pesti/exec/plan"
	"pesti/exec/sample"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/lower"
)

// onBoth opens the embedded model on the CPU and on the virtual device, with the same options.
func onBoth(t *testing.T, o lower.Options, run exec.Options) (processor, device *exec.Engine) {
	t.Helper()
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	open := func(target string, run exec.Options) *exec.Engine {
		o.Target = target
		res, err := lower.Compile(m, o)
		if err != nil {
			t.Fatal(err)
		}
		if s := plan.Summarize(res.Plan); target == plan.CUDA && o.Passes == "" && s.Fallbacks != 0 {
			t.Fatalf("%d fallbacks, expected none", s.Fallbacks)
		}
		e, err := exec.Open(res.Plan, f, run)
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
	processor = open("cpu", exec.Options{Poison: true})
	run.Poison, run.Driver = true, virtual.New(virtual.Config{})
	return processor, open(plan.CUDA, run)
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// TestDeviceDecodes continues a prompt on the virtual device and on the CPU. The logits must be close, and
// in exact the tokens the same. The prompt is a whole chunk and some more tokens.
func TestDeviceDecodes(t *testing.T) {
	var prompt []int32
	for i := range int32(77) {
		prompt = append(prompt, (i*i*37+5)%1500)
	}
	tokens := map[string]int{"exact": 33, "fast": 4}
	if testing.Short() { // slow under the race detector
		prompt, tokens = prompt[:9], map[string]int{"exact": 3, "fast": 2}
	}
	for precision, bound := range map[string]float64{"exact": 1e-4, "fast": 2e-2} {
		t.Run(precision, func(t *testing.T) {
			a, b := onBoth(t, lower.Options{Precision: precision, Ctx: 128}, exec.Options{})
			sa, err := exec.NewSession(a)
			if err != nil {
				t.Fatal(err)
			}
			sb, err := exec.NewSession(b)
			if err != nil {
				t.Fatal(err)
			}
			ids, worst := prompt, 0.0
			for range tokens[precision] {
				want, err := sa.Feed(t.Context(), ids)
				if err != nil {
					t.Fatal(err)
				}
				got, err := sb.Feed(t.Context(), ids)
				if err != nil {
					t.Fatal(err)
				}
				for i := range want {
					worst = max(worst, math.Abs(float64(want[i]-got[i])))
				}
				next := argmax(want)
				if precision == "exact" && argmax(got) != next {
					t.Fatalf("position %d: token %d, expected %d", sa.Pos(), argmax(got), next)
				}
				ids = []int32{next}
			}
			t.Logf("worst difference of a logit: %v", worst)
			if !(worst <= bound) {
				t.Errorf("a logit differs by %v, expected at most %v", worst, bound)
			}
		})
	}
}

// TestDeviceOnHost runs a plan without passes, whose steps run on the host, and compares the logits with
// those of the CPU.
func TestDeviceOnHost(t *testing.T) {
	a, b := onBoth(t, lower.Options{Precision: "exact", Ctx: 32, Passes: "none"}, exec.Options{})
	var logits [2][]float32
	for i, e := range []*exec.Engine{a, b} {
		s, err := exec.NewSession(e)
		if err != nil {
			t.Fatal(err)
		}
		row, err := s.Feed(t.Context(), []int32{5, 17, 301})
		if err != nil {
			t.Fatal(err)
		}
		logits[i] = slices.Clone(row)
	}
	if !slices.Equal(logits[0], logits[1]) {
		t.Error("the same steps on the host gave other logits")
	}
}

// TestDeviceRefuses opens plans on devices that cannot run them. Each error must be one line with what was
// found and expected, and must leave the device closed.
func TestDeviceRefuses(t *testing.T) {
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*cuda.Properties)) *virtual.Driver {
		p := virtual.Default()
		change(&p)
		return virtual.New(virtual.Config{Devices: []cuda.Properties{p}})
	}
	none := func(*cuda.Properties) {}
	for _, c := range []struct {
		name, target, isa string
		driver            *virtual.Driver
		device            int
		want              []string
	}{
		{"no device", plan.CUDA, "sm_75", nil, 0, []string{"sm_75", "cuda:0, or virtual"}},
		{"a number that there is not", plan.CUDA, "sm_75", with(none), 1, []string{"no device 1"}},
		{"an older device", plan.CUDA, "sm_80", with(func(p *cuda.Properties) { p.Major, p.Minor = 7, 5 }), 0, []string{"sm_80", "7.5", "instruction set of the device"}},
		{"too little memory", plan.CUDA, "sm_75", with(func(p *cuda.Properties) { p.Memory = 4 << 20 }), 0, []string{"needs", "4.0 MiB", "a shorter context"}},
		{"a plan for the processor", "cpu", "portable", with(none), 0, []string{"portable", "for target cuda"}},
	} {
		res, err := lower.Compile(m, lower.Options{Target: c.target, ISA: c.isa})
		if err != nil {
			t.Fatal(err)
		}
		o := exec.Options{Devices: []int{c.device}}
		if c.driver != nil {
			o.Driver = c.driver
		}
		e, err := exec.Open(res.Plan, f, o)
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
		if c.driver != nil {
			if again, err := c.driver.Open(0); err != nil {
				t.Errorf("%s: the device is not free afterwards: %v", c.name, err)
			} else if err := again.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDeviceObserves checks that the values of every step are observed, also quantized ones, for one token
// and for a chunk.
func TestDeviceObserves(t *testing.T) {
	seen := map[string]bool{}
	var residual []float32
	_, device := onBoth(t, lower.Options{Precision: "fast", Ctx: 64}, exec.Options{Observe: func(o exec.Observation) {
		seen[o.Program.Name+" "+o.Step.Kernel] = true
		if o.Name == "blk.1.out" {
			residual = slices.Clone(o.Data)
		}
		for i, v := range o.Data {
			if math.IsNaN(float64(v)) {
				t.Fatalf("%s: element %d is NaN", o.Name, i)
			}
		}
	}})
	s, err := exec.NewSession(device)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32
	for i := range int32(64) {
		ids = append(ids, i*20)
	}
	if _, err := s.Feed(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	s.Reset()
	if _, err := s.Feed(t.Context(), ids[:1]); err != nil {
		t.Fatal(err)
	}
	if len(residual) != 256 {
		t.Errorf("the residual stream of one token has %d elements, expected 256", len(residual))
	}
	for _, want := range []string{"prefill cuda.norm", "prefill cuda.gemm", "prefill cuda.prefill", "decode cuda.gemv", "decode cuda.attention"} {
		if !seen[want] {
			t.Errorf("no value of %s was seen", want)
		}
	}
}

// TestDeviceSameBits checks that a token's logits on a device have the same bits however its prompt was
// cut, and with other sequences in the batch.
func TestDeviceSameBits(t *testing.T) {
	ids := []int32{5, 17, 301, 44, 9, 1000}
	precisions := []string{"exact", "fast"}
	if testing.Short() { // slow under the race detector
		precisions = precisions[1:]
	}
	for _, precision := range precisions {
		_, e := onBoth(t, lower.Options{Precision: precision, Ctx: 32, Sequences: 3}, exec.Options{})
		var sessions []*exec.Session
		for range 3 {
			s, err := exec.NewSession(e)
			if err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, s)
		}
		feed := func(s *exec.Session, ids []int32) []float32 {
			row, err := s.Feed(t.Context(), ids)
			if err != nil {
				t.Fatal(err)
			}
			return slices.Clone(row)
		}
		want := feed(sessions[0], ids)
		feed(sessions[1], ids[:2])
		if got := feed(sessions[1], ids[2:]); !slices.Equal(got, want) {
			t.Errorf("%s: other bits in two parts", precision)
		}
		for i := range sessions {
			sessions[i].Reset()
			feed(sessions[i], ids[i:len(ids)-1]) // sequences of different lengths
		}
		last := ids[len(ids)-1]
		if err := exec.DecodeBatch(t.Context(), sessions, []int32{last, last, last}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sessions[0].Logits(0), want) {
			t.Errorf("%s: other bits in a batch with other sequences", precision)
		}
	}
}

// TestDeviceCanceled cancels forward passes on the device: before they begin, and after each of
// their steps. The session keeps its tokens, and the same token again gives the bits of an
// undisturbed engine.
func TestDeviceCanceled(t *testing.T) {
	_, quiet := onBoth(t, lower.Options{Ctx: 32}, exec.Options{})
	undisturbed := session(t, quiet)
	feed(t, undisturbed, []int32{1})
	want := feed(t, undisturbed, []int32{2, 3})

	steps, at, cancel := 0, -1, func() {}
	_, e := onBoth(t, lower.Options{Ctx: 32}, exec.Options{Observe: func(exec.Observation) {
		if steps == at {
			cancel()
		}
		steps++
	}})
	s := session(t, e)
	feed(t, s, []int32{1})
	total := steps
	for at = -1; at < total; at += 5 {
		ctx, stop := context.WithCancelCause(t.Context())
		cancel, steps = func() { stop(errEnough) }, 0
		if at < 0 {
			cancel()
		}
		if _, err := s.Feed(ctx, []int32{2, 3}); !errors.Is(err, context.Canceled) || !errors.Is(err, errEnough) || s.Pos() != 1 {
			t.Fatalf("after step %d: error %v at position %d, expected a canceled pass at 1", at, err, s.Pos())
		}
		if steps > at+1 {
			t.Fatalf("%d steps ran, expected none after step %d", steps, at)
		}
		stop(nil)
	}
	if got := feed(t, s, []int32{2, 3}); !slices.Equal(got, want) {
		t.Error("after canceled passes: logits differ")
	}
}

// TestDeviceCanceledWithin cancels passes of captured launches at any time. Wherever a pass
// stopped, feeding the rest gives the same bits.
func TestDeviceCanceledWithin(t *testing.T) {
	_, e := onBoth(t, lower.Options{Ctx: 64, Sequences: 2}, exec.Options{})
	quiet, s := session(t, e), session(t, e)
	ids := prompt(2)
	feed(t, quiet, ids)
	begin := time.Now()
	want := feed(t, quiet, []int32{7})
	took := time.Since(begin)
	const times = 5
	for i := range times {
		ctx, stop := context.WithTimeout(t.Context(), took*time.Duration(i)/times)
		for s.Pos() < len(ids) {
			_, err := s.Feed(ctx, ids[s.Pos():])
			if err == nil && i == 0 {
				t.Fatal("a pass whose deadline is over: no error")
			}
			if err != nil && (!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
				t.Fatalf("error %v, expected one of the deadline alone", err)
			}
			if err != nil {
				feed(t, s, ids[s.Pos():])
			}
		}
		stop()
		if got := feed(t, s, []int32{7}); !slices.Equal(got, want) {
			t.Fatalf("deadline %d: logits differ", i)
		}
		s.Reset()
	}
	if quiet.Pos() != len(ids)+1 {
		t.Errorf("another session is at %d, expected %d", quiet.Pos(), len(ids)+1)
	}
}

// A meter is a device that counts allocated and freed bytes.
type meter struct {
	cuda.Driver
	cuda.Device
	taken map[cuda.Ptr]int64
}

func (m *meter) Open(number int) (cuda.Device, error) {
	var err error
	m.Device, err = m.Driver.Open(number)
	return m, err
}

func (m *meter) Alloc(bytes int64) (cuda.Ptr, error) {
	p, err := m.Device.Alloc(bytes)
	m.taken[p] = bytes
	return p, err
}

func (m *meter) Free(p cuda.Ptr) error {
	delete(m.taken, p)
	return m.Device.Free(p)
}

func (m *meter) Close() error { return m.Device.Close() }

// TestDeviceMemory checks that an engine allocates exactly the device memory that its plan states.
func TestDeviceMemory(t *testing.T) {
	for _, o := range []lower.Options{
		{Precision: "exact", Ctx: 64}, {Precision: "fast", Ctx: 100, Ubatch: 37, Sequences: 3}, {KV: "f8_e4m3", Outputs: []string{"blk.*.out"}},
	} {
		o.Target = plan.CUDA
		p, f := compiled(t, o)
		m := &meter{Driver: virtual.New(virtual.Config{}), taken: map[cuda.Ptr]int64{}}
		e, err := exec.Open(p, f, exec.Options{Driver: m})
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, bytes := range m.taken {
			sum += bytes
		}
		need := plan.MemoryUseOf(p)
		if p.Memory.Tables == 0 || need.Weights != 0 || need.Total() != sum {
			t.Errorf("%+v: the device gave %d bytes, and the plan says %d: %+v", o, sum, need.Total(), need)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if len(m.taken) != 0 {
			t.Errorf("%d pieces of memory were not freed", len(m.taken))
		}
	}
}

// compiled returns a plan for the embedded model and the model's file.
func compiled(t *testing.T, o lower.Options) (*plan.Plan, *gguf.File) {
	t.Helper()
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	res, err := lower.Compile(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan, f
}

// TestDeviceTop checks the top-k logits of a device and their order.
func TestDeviceTop(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	_, e := onBoth(t, lower.Options{Precision: "fast", Ctx: 96}, exec.Options{})
	s, err := exec.NewSession(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ids []int32
		ks  []int
	}{{[]int32{7}, []int{1, 2, 64, 65, 0, 1}}, {[]int32{1, 2, 3}, []int{64, 1}}, {slices.Repeat([]int32{9}, 64), []int{2}}} {
		ids := c.ids
		at := s.Pos()
		all, err := s.Feed(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		order := make([]int32, len(all))
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(all[b], all[a]) })
		sorted := make([]float32, len(all))
		for i, id := range order {
			sorted[i] = all[id]
		}
		all = slices.Clone(all)
		for _, k := range c.ks {
			if err := s.Truncate(at); err != nil {
				t.Fatal(err)
			}
			row, err := s.FeedTopK(t.Context(), ids, k)
			switch {
			case err != nil:
				t.Fatal(err)
			case k == 0 || k == 65:
				if row.IDs != nil || !slices.Equal(row.Logits, all) || !slices.Equal(s.Logits(0), all) {
					t.Errorf("%d tokens, of the greatest %d: not all logits", len(ids), k)
				}
				continue
			case k == 1:
				if row.Logits != nil || !slices.Equal(row.IDs, order[:1]) {
					t.Errorf("%d tokens: %v, expected token %d alone", len(ids), row, order[0])
				}
			case !slices.Equal(row.IDs, order[:64]) || !slices.Equal(row.Logits, sorted[:64]):
				t.Errorf("%d tokens: the greatest are %v, expected %v", len(ids), row.IDs, order[:64])
			}
			if s.Logits(0) != nil {
				t.Error("there are logits that were left on the device")
			}
		}
	}
}

// An uploads is a driver with one device and one stream. It counts the operations on the stream.
type uploads struct {
	cuda.Driver
	cuda.Device
	cuda.Stream
	counts map[string]int // of calls, and of bytes
	last   []byte         // of Upload
}

func (u *uploads) Open(number int) (cuda.Device, error) {
	var err error
	u.Device, err = u.Driver.Open(number)
	return &uploadsDevice{u}, err
}

type uploadsDevice struct{ *uploads }

func (u *uploadsDevice) Properties() cuda.Properties { return u.Device.Properties() }
func (u *uploadsDevice) Close() error                { return u.Device.Close() }
func (u *uploadsDevice) NewStream() (cuda.Stream, error) {
	var err error
	u.Stream, err = u.Device.NewStream()
	return &uploadsStream{u.uploads}, err
}

type uploadsStream struct{ *uploads }

func (u *uploadsStream) Close() error { return u.Stream.Close() }
func (u *uploadsStream) Upload(dst cuda.Ptr, src []byte) error {
	u.counts["uploads"]++
	u.counts["uploaded"] += len(src)
	u.last = slices.Clone(src)
	return u.Stream.Upload(dst, src)
}

func (u *uploadsStream) Download(dst []byte, src cuda.Ptr) error {
	u.counts["downloads"]++
	u.counts["downloaded"] += len(dst)
	return u.Stream.Download(dst, src)
}

func (u *uploadsStream) Launch(l cuda.Launch) error {
	u.counts["launches"]++
	return u.Stream.Launch(l)
}

func (u *uploadsStream) Replay(g cuda.Graph) error {
	u.counts["replays"]++
	return u.Stream.Replay(g)
}

// TestDeviceFollows checks greedy decoding: per token, four bytes are downloaded, the device reads the
// token from its own memory, and one graph is launched.
func TestDeviceFollows(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	a, _ := onBoth(t, lower.Options{Precision: "exact", Ctx: 32}, exec.Options{})
	p, f := compiled(t, lower.Options{Target: plan.CUDA, Precision: "exact", Ctx: 32})
	u := &uploads{Driver: virtual.New(virtual.Config{}), counts: map[string]int{}}
	b, err := exec.Open(p, f, exec.Options{Driver: u})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sa, err := exec.NewSession(a)
	if err != nil {
		t.Fatal(err)
	}
	sb, err := exec.NewSession(b)
	if err != nil {
		t.Fatal(err)
	}
	inputs := 0 // bytes
	for _, b := range p.Buffers {
		if slices.ContainsFunc(plan.Inputs(), func(in plan.Input) bool { return in.Name == b.Name }) {
			inputs += int(b.Size)
		}
	}
	ids := []int32{7, 8, 9}
	for i := range 5 {
		clear(u.counts)
		want, err := sa.Feed(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		row, err := sb.FeedTopK(t.Context(), ids, 1)
		if err != nil {
			t.Fatal(err)
		}
		token := int32(binary.LittleEndian.Uint32(u.last))
		if len(row.IDs) != 1 || row.IDs[0] != argmax(want) {
			t.Fatalf("step %d: %v, expected token %d", i, row.IDs, argmax(want))
		}
		ids = slices.Clone(row.IDs)
		if i == 0 {
			continue
		}
		if token != -1 {
			t.Errorf("step %d: token %d was uploaded, expected the device to take its own", i, token)
		}
		expected := map[string]int{"uploads": 1, "uploaded": inputs, "downloads": 1, "downloaded": 4, "replays": 1}
		if i > 2 && !maps.Equal(u.counts, expected) { // the launches are captured by now
			t.Errorf("step %d: %v, expected %v", i, u.counts, expected)
		}
	}
	// A token that is not the most likely one is uploaded.
	if _, err := sb.FeedTopK(t.Context(), []int32{(ids[0] + 1) % 1000}, 1); err != nil {
		t.Fatal(err)
	}
	if token := int32(binary.LittleEndian.Uint32(u.last)); token != (ids[0]+1)%1000 {
		t.Errorf("token %d was uploaded, expected %d", token, (ids[0]+1)%1000)
	}
}

// A cramped device fails allocations above a limit.
type cramped struct {
	meter
	bytes int64
}

func (c *cramped) Open(number int) (cuda.Device, error) {
	_, err := c.meter.Open(number)
	return c, err
}

func (c *cramped) Alloc(bytes int64) (cuda.Ptr, error) {
	if bytes == c.bytes {
		bytes = 256
	}
	return c.meter.Alloc(bytes)
}

// TestDeviceTraps checks that a kernel that traps ends the step with one line that names it, that every
// later call returns the same error, and that all memory is freed then.
func TestDeviceTraps(t *testing.T) {
	p, f := compiled(t, lower.Options{Target: plan.CUDA, Ctx: 48, Sequences: 2})
	cache := int64(0)
	for _, b := range p.Buffers {
		if b.Class == plan.State {
			cache = b.Size
		}
	}
	c := &cramped{meter{Driver: virtual.New(virtual.Config{}), taken: map[cuda.Ptr]int64{}}, cache}
	e, err := exec.Open(p, f, exec.Options{Driver: c})
	if err != nil {
		t.Fatal(err)
	}
	s, err := exec.NewSession(e)
	if err != nil {
		t.Fatal(err)
	}
	first := ""
	for range 2 {
		_, err = s.FeedTopK(t.Context(), []int32{1, 2}, 1)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "attention") || s.Pos() != 0 {
			t.Fatalf("error %v at position %d, expected one line that names the kernel", err, s.Pos())
		}
		if first == "" {
			first = err.Error()
		}
		if err.Error() != first {
			t.Errorf("then error %q, expected %q again", err, first)
		}
	}
	if err := e.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	again, err := c.Driver.Open(0)
	if err != nil {
		t.Fatalf("the device is not free afterwards: %v", err)
	}
	if err := again.Close(); err != nil { // reports leaks
		t.Error(err)
	}
}

// TestDeviceNaN checks that a device returns all logits if one is NaN, so that the error is that of the CPU.
func TestDeviceNaN(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	f, err := gguf.Parse("demo", slices.Clone(demo.GGUF()))
	if err != nil {
		t.Fatal(err)
	}
	norm, ok := f.Tensor("output_norm.weight")
	if !ok {
		t.Fatal("no output norm")
	}
	binary.LittleEndian.PutUint32(f.Bytes(norm)[40:], math.Float32bits(float32(math.NaN())))
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, temp := range []float64{0, 0.8} {
		var errs []string
		for _, target := range []string{"cpu", plan.CUDA} {
			res, err := lower.Compile(m, lower.Options{Target: target, Precision: "exact", Ctx: 32})
			if err != nil {
				t.Fatal(err)
			}
			o := exec.Options{}
			if target == plan.CUDA {
				o.Driver = virtual.New(virtual.Config{})
			}
			e, err := exec.Open(res.Plan, f, o)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			s, err := exec.NewSession(e)
			if err != nil {
				t.Fatal(err)
			}
			p := sample.Default()
			p.Temp = temp
			sampler, err := sample.New(p, s.Vocabulary())
			if err != nil {
				t.Fatal(err)
			}
			row, err := s.FeedTopK(t.Context(), []int32{5}, sampler.TopKNeeded())
			if err != nil || row.IDs != nil {
				t.Fatalf("%s: ids %v, error %v, expected all logits", target, row.IDs, err)
			}
			_, err = sampler.Sample(0, row.Logits)
			errs = append(errs, fmt.Sprint(err))
		}
		if errs[0] != errs[1] || !strings.Contains(errs[0], "NaN") {
			t.Errorf("temperature %v: the errors are %q", temp, errs)
		}
	}
}
