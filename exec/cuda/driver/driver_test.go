//go:build libcuda

package driver_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/exec/cuda"
	"pesti/exec/cuda/driver"
	"pesti/exec/cuda/virtual"
)

// These tests run against the library of conformance/cudastub, which records its calls: see the
// Makefile. The virtual device executes the calls, so the errors are the virtual device's.

const ptx = `.version 7.0
.target sm_75
.address_size 64
.visible .entry fill(.param .align 8 .b8 p[16]) { ret; }
`

// A script is a stub that records its calls.
type script struct {
	path string
	read int
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{path: filepath.Join(t.TempDir(), "log")}
	t.Setenv("CUDASTUB_LOG", s.path)
	return s
}

// calls returns the lines since the last call, without calls that only read.
func (s *script) calls(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(s.path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text[s.read:]), "\n"), "\n")
	s.read = len(text)
	return lines
}

// expect compares the calls since the last time.
func (s *script) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := s.calls(t); !slices.Equal(got, want) {
		t.Errorf("%s calls\n\t%s\nexpected\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func open(t *testing.T) cuda.Device {
	t.Helper()
	d, err := driver.New().Open(0)
	if err != nil {
		t.Fatal(err)
	}
	if d.Properties().Name != "stub" {
		d.Close()
		t.Skip("there is a real device")
	}
	return d
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestProperties(t *testing.T) {
	s := newScript(t)
	all, err := driver.New().Devices()
	if calls := s.calls(t); slices.ContainsFunc(calls, func(call string) bool { return strings.HasPrefix(call, "cuCtx") }) {
		t.Errorf("listing devices calls %q, expected no context", calls)
	}
	d := open(t)
	defer d.Close()
	want := virtual.Default()
	want.Name, want.Free = "stub", want.Memory
	if got := d.Properties(); got != want {
		t.Errorf("found %+v, expected %+v", got, want)
	}
	want.Free = 0
	if err != nil || len(all) != 1 || all[0] != want {
		t.Errorf("found %+v, %v; expected %+v", all, err, want)
	}
	if v := driver.New().Version(); v < 12000 {
		t.Errorf("the driver is for CUDA %d", v)
	}
	for _, n := range []int{-1, 1} {
		if _, err := driver.New().Open(n); err == nil || !strings.Contains(err.Error(), "no such device, expected a number from 0 to 0") {
			t.Errorf("device %d: %v", n, err)
		}
	}
}

// Methods of the interface make these calls, in this order, with these arguments.
func TestCalls(t *testing.T) {
	d := open(t)
	s := newScript(t)
	p := must(d.Alloc(1000))(t)
	host := must(d.AllocHost(64))(t)
	s.expect(t, "allocating", "cuMemAlloc_v2 1000", "cuMemHostAlloc 64 flags=1")
	if p%256 != 0 || len(host) != 64 {
		t.Errorf("memory at %#x, %d bytes of host memory", p, len(host))
	}

	stream := must(d.NewStream())(t)
	s.expect(t, "making a stream", "cuStreamCreate flags=1") // non-blocking
	for i := range host {
		host[i] = byte(i)
	}
	check(t, stream.Upload(p, host))
	check(t, stream.Fill(p+8, 0xee, 4))
	check(t, stream.Copy(p+100, p, 64))
	back := make([]byte, 64)
	check(t, stream.Download(back, p+100))
	check(t, stream.Wait())
	calls := s.calls(t)
	id := calls[len(calls)-1][len("cuStreamSynchronize "):]
	want := []string{
		"cuMemcpyHtoDAsync_v2 64 stream=" + id, "cuMemsetD8Async 4 value=238 stream=" + id, "cuMemcpyAsync 64 stream=" + id,
		"cuMemcpyDtoHAsync_v2 64 stream=" + id, "cuStreamSynchronize " + id,
	}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %q, expected %q", calls, want)
	}
	for i := range 4 {
		host[8+i] = 0xee
	}
	if !bytes.Equal(back, host) {
		t.Errorf("downloads %x, expected %x", back, host)
	}

	for _, empty := range []error{stream.Upload(p, nil), stream.Download(nil, p), stream.Copy(p, p, 0), stream.Fill(p, 1, 0)} {
		check(t, empty)
	}
	s.expect(t, "nothing to copy", "")

	check(t, d.FreeHost(host))
	check(t, d.Free(p))
	check(t, stream.Close())
	s.expect(t, "freeing", "cuMemFreeHost", "cuMemFree_v2", "cuStreamDestroy_v2 "+id)
	check(t, d.Close())
	s.expect(t, "closing", "cuCtxDestroy_v2")
}

func TestLaunch(t *testing.T) {
	d := open(t)
	defer d.Close()
	s := newScript(t)
	m := must(d.Load([]byte(ptx)))(t)
	must(m.Function("fill", 0))(t)
	f := must(m.Function("fill", 60000))(t)
	must(m.Function("fill", 50000))(t) // less shared memory than in the call before
	calls := s.calls(t)
	module, kernel := strings.Fields(calls[1])[1], strings.Fields(calls[2])[1]
	if want := []string{fmt.Sprint("cuModuleLoadDataEx ", len(ptx)), "cuModuleGetFunction " + module + " fill", "cuFuncSetAttribute " + kernel + " 8=60000"}; !slices.Equal(calls, want) {
		t.Errorf("calls %q, expected %q", calls, want)
	}
	if f.Name() != "fill" {
		t.Errorf("the kernel is called %q", f.Name())
	}

	stream := must(d.NewStream())(t)
	s.calls(t)
	params := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255}
	check(t, stream.Launch(cuda.Launch{Function: f, Grid: cuda.Dim{X: 7, Y: 6, Z: 5}, Block: cuda.Dim{X: 4, Y: 3, Z: 2}, Shared: 60000, Params: params}))
	check(t, stream.Wait())
	launched := s.calls(t)
	want := "cuLaunchKernel " + kernel + " grid=7,6,5 block=4,3,2 shared=60000 params=0102030405060708090a0b0c0d0e0fff stream="
	if len(launched) != 2 || !strings.HasPrefix(launched[0], want) {
		t.Errorf("calls %q, expected %s", launched, want)
	}
	check(t, m.Unload())
	s.expect(t, "unloading", "cuModuleUnload "+module)
}

func TestGraph(t *testing.T) {
	d := open(t)
	s := newScript(t)
	p := must(d.Alloc(16))(t)
	f := must(must(d.Load([]byte(ptx)))(t).Function("fill", 0))(t)
	stream := must(d.NewStream())(t)
	launch := cuda.Launch{Function: f, Grid: cuda.Dim{X: 1, Y: 1, Z: 1}, Block: cuda.Dim{X: 32, Y: 1, Z: 1}, Params: make([]byte, 16)}
	s.calls(t)
	check(t, stream.Capture())
	check(t, stream.Launch(launch))
	check(t, stream.Fill(p, 1, 16))
	g := must(stream.EndCapture())(t)
	check(t, stream.Replay(g))
	check(t, stream.Replay(g))
	var names []string
	for _, line := range s.calls(t) {
		words := strings.Fields(line)
		names = append(names, words[0])
		if words[0] == "cuStreamBeginCapture_v2" && words[1] != "mode=2" { // relaxed
			t.Errorf("captures with %s", line)
		}
	}
	if want := []string{"cuStreamBeginCapture_v2", "cuLaunchKernel", "cuMemsetD8Async", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphDestroy", "cuGraphLaunch", "cuGraphLaunch"}; !slices.Equal(names, want) {
		t.Errorf("calls %q, expected %q", names, want)
	}
	check(t, g.Close())
	if err := stream.Replay(g); err == nil {
		t.Error("a closed graph replays")
	}
	if _, err := stream.EndCapture(); err == nil {
		t.Error("a capture ends that did not begin")
	}
	check(t, stream.Capture())
	must(stream.EndCapture())(t) // Close destroys it
	must(d.AllocHost(8))(t)      // Close frees it
	s.calls(t)
	check(t, d.Close())
	closing := s.calls(t)
	if len(closing) < 3 || !strings.HasPrefix(closing[0], "cuGraphExecDestroy ") || closing[1] != "cuMemFreeHost" || closing[2] != "cuCtxDestroy_v2" {
		t.Errorf("closing calls %q", closing)
	}
}

func TestEvents(t *testing.T) {
	d := open(t)
	defer d.Close()
	a, b := must(d.NewStream())(t), must(d.NewStream())(t)
	from, to := must(d.NewEvent())(t), must(d.NewEvent())(t)
	s := newScript(t)
	check(t, a.Record(from))
	check(t, a.Record(to))
	check(t, b.Await(to))
	check(t, a.Wait())
	if ms, err := to.Since(from); err != nil || ms < 0 {
		t.Errorf("between the events are %v ms, %v", ms, err)
	}
	if _, err := from.Since(nil); err == nil {
		t.Error("there is time since no event")
	}
	var names []string
	for _, line := range s.calls(t) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	if want := []string{"cuEventRecord", "cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize", "cuEventElapsedTime"}; !slices.Equal(names, want) {
		t.Errorf("calls %q, expected %q", names, want)
	}
	check(t, from.Close())
	check(t, to.Close())
}

// Each error states in one line the failed operation and the driver's message.
func TestErrors(t *testing.T) {
	d := open(t)
	defer d.Close()
	stream := must(d.NewStream())(t)
	m := must(d.Load([]byte(ptx)))(t)
	f := must(m.Function("fill", 0))(t)
	for what, c := range map[string]struct {
		call func() error
		want string
	}{
		"too much memory": {func() error { _, err := d.Alloc(9 << 30); return err }, "allocating 9.0 GiB: CUDA error 2, virtual device: out of memory: 9663676416 bytes are wanted, 8589934592 of 8589934592 are free: 8.0 GiB free of 8.0 GiB"},
		"no memory":       {func() error { _, err := d.Alloc(0); return err }, "allocating 0 bytes, expected one or more"},
		"no host memory":  {func() error { _, err := d.AllocHost(0); return err }, "allocating 0 bytes of host memory, expected one or more"},
		"twice freed":     {func() error { return d.Free(4096) }, "freeing memory: CUDA error 1, virtual device: free of 0 bytes at a null pointer plus 4096"},
		"foreign memory":  {func() error { return d.FreeHost(make([]byte, 1)) }, "freeing host memory that the device did not give out"},
		"no PTX":          {func() error { _, err := d.Load([]byte("hello")); return err }, "compiling a module: CUDA error 218: virtual device: PTX line 1: hello is not supported here"},
		"empty PTX":       {func() error { _, err := d.Load(nil); return err }, "compiling a module: CUDA error 218: virtual device: PTX line 1: no .version and .target: this is not PTX"},
		"no kernel":       {func() error { _, err := m.Function("gemv", 0); return err }, "kernel gemv: CUDA error 500, virtual device: the module has no kernel gemv"},
		"shared memory":   {func() error { _, err := m.Function("fill", 200000); return err }, "kernel fill: CUDA error 1, virtual device: kernel fill with 200000 bytes of shared memory; a block may have 101376"},
		"no blocks":       {func() error { return stream.Launch(cuda.Launch{Function: f}) }, "launching fill: CUDA error 1, virtual device: kernel fill: a grid of 0×0×0 blocks"},
		"outside":         {func() error { return stream.Upload(64, []byte{1}) }, "uploading: CUDA error 1, virtual device: upload of 1 bytes at a null pointer plus 64"},
		"foreign kernel":  {func() error { return stream.Launch(cuda.Launch{}) }, "launching: the kernel is of another driver"},
		"foreign event":   {func() error { return stream.Await(nil) }, "the event is of another driver"},
		"foreign graph":   {func() error { return stream.Replay(nil) }, "replaying: the graph is closed or belongs to another driver"},
		"foreign peer":    {func() error { return d.EnablePeer(nil) }, "enabling peer copies: the other device is closed or belongs to another driver"},
	} {
		err := c.call()
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v\nexpected %s", what, err, c.want)
		}
		if errors.Is(err, cuda.ErrOutOfMemory) != (what == "too much memory") {
			t.Errorf("%s: ErrOutOfMemory is %t", what, errors.Is(err, cuda.ErrOutOfMemory))
		}
	}
	must(m.Function("fill", 0))(t) // succeeds after an earlier error
}

// After a kernel has trapped, all later calls fail, but Close still frees everything.
func TestTrap(t *testing.T) {
	d := open(t)
	stream := must(d.NewStream())(t)
	must(d.AllocHost(8))(t)
	s := newScript(t)
	t.Setenv("CUDASTUB_FAIL", "cuStreamSynchronize=700")
	const want = ": CUDA error 700, an illegal memory access was encountered"
	if err := stream.Wait(); err == nil || err.Error() != "running"+want {
		t.Errorf("waiting: %v", err)
	}
	if _, err := d.Alloc(1); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("allocating: %v", err)
	}
	s.calls(t)
	d.Close() // may report the trap again
	if calls := s.calls(t); len(calls) < 2 || calls[0] != "cuMemFreeHost" || calls[1] != "cuCtxDestroy_v2" {
		t.Errorf("closing calls %q", calls)
	}
	if err := stream.Wait(); err == nil || err.Error() != "running: the device is closed" {
		t.Errorf("waiting on a closed device: %v", err)
	}
	check(t, d.Close())
}
