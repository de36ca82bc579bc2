package virtual

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"pesti/exec/cuda"
)

// fails checks the text of an error.
func fails(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestOpen(t *testing.T) {
	d := New(Config{Devices: []cuda.Properties{Default(), Default()}})
	_, err := d.Open(2)
	fails(t, err, "there is no device 2; there are 2")
	_, err = d.Open(-1)
	fails(t, err, "there is no device -1")
	one, err := d.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Open(1)
	fails(t, err, "device 1 is open already")
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	fails(t, one.Close(), "closed")
	_, err = one.Alloc(1)
	fails(t, err, "closed")
	if _, err := d.Open(1); err != nil {
		t.Error(err)
	}
}

func TestMemory(t *testing.T) {
	p := Default()
	p.Memory = 1000
	b := newBench(t, Config{Devices: []cuda.Properties{p}})
	_, err := b.device.Alloc(0)
	fails(t, err, "0 bytes of memory")
	a, err := b.device.Alloc(600)
	b.check(err)
	if a%256 != 0 {
		t.Errorf("address %#x", a)
	}
	list, err := b.driver.Devices()
	b.check(err)
	if free := b.device.Properties().Free; free != 400 || list[0].Free != 400 {
		t.Errorf("%d bytes and %d are free", free, list[0].Free)
	}
	_, err = b.device.Alloc(401)
	fails(t, err, "out of memory: 401 bytes are wanted, 400 of 1000 are free")
	fails(t, b.stream.Upload(a+500, make([]byte, 101)), "upload of 101 bytes at byte 500 of memory of 600 bytes")
	fails(t, b.stream.Upload(a+601, nil), "upload of 0 bytes at 1 bytes behind the end of memory of 600 bytes")
	fails(t, b.stream.Download(make([]byte, 1), 0), "download of 1 bytes at a null pointer plus 0")
	fails(t, b.stream.Fill(a, 0, 601), "fill of 601 bytes")
	fails(t, b.stream.Fill(a, 0, -1), "fill of -1 bytes")
	fails(t, b.device.Free(a+1), "free of an address 1 bytes into memory of 600 bytes")
	b.check(b.device.Free(a))
	fails(t, b.device.Free(a), "that was freed")
	fails(t, b.stream.Copy(a, a, 1), "that was freed")
	if _, err := b.device.Alloc(1000); err != nil {
		t.Error(err)
	}
}

// TestUnwritten checks that downloading memory that was never written is an error, also after a
// copy.
func TestUnwritten(t *testing.T) {
	for _, copied := range []bool{false, true} {
		b := newBench(t, Config{})
		a, err := b.device.Alloc(200)
		b.check(err)
		b.check(b.stream.Upload(a, make([]byte, 70)))
		b.check(b.stream.Fill(a+71, 1, 129))
		if copied {
			c, err := b.device.Alloc(200)
			b.check(err)
			b.check(b.stream.Copy(c, a, 200))
			a = c
		}
		b.check(b.stream.Download(make([]byte, 129), a+71))
		b.check(b.stream.Wait())
		b.check(b.stream.Download(make([]byte, 100), a+50))
		fails(t, b.stream.Wait(), "download of 100 bytes at byte 50 of memory of 200 bytes: byte 70 was never written")
	}
}

func TestLeaks(t *testing.T) {
	b := newBench(t, Config{})
	_, err := b.device.Alloc(100)
	b.check(err)
	_, err = b.device.Alloc(20)
	b.check(err)
	_, err = b.device.AllocHost(10)
	b.check(err)
	_, err = b.device.NewEvent()
	b.check(err)
	b.kernel(entry("ret;"), "k", 0)
	b.check(b.stream.Capture())
	_, err = b.stream.EndCapture()
	b.check(err)
	fails(t, b.device.Close(), "closed with 2 allocations of 120 bytes, 1 allocations of host memory, 1 modules, 1 streams, 1 events, 1 graphs not freed")

	b = newBench(t, Config{})
	p, err := b.device.Alloc(100)
	b.check(err)
	h, err := b.device.AllocHost(10)
	b.check(err)
	m, err := b.device.Load([]byte(".version 8.0\n.target sm_75\n.address_size 64\n.global .u32 x = 7;\n"))
	b.check(err)
	e, err := b.device.NewEvent()
	b.check(err)
	b.check(b.stream.Capture())
	g, err := b.stream.EndCapture()
	b.check(err)
	b.check(g.Close())
	b.check(e.Close())
	b.check(m.Unload())
	fails(t, b.device.FreeHost(make([]byte, 10)), "freeing host memory that AllocHost did not return")
	b.check(b.device.FreeHost(h))
	b.check(b.device.Free(p))
	b.check(b.stream.Close())
	if free := b.device.Properties().Free; free != Default().Memory {
		t.Errorf("%d bytes are free", free)
	}
	b.check(b.device.Close())
}

func TestLaunchLimits(t *testing.T) {
	b := newBench(t, Config{})
	f := b.kernel(entry("ret;"), "k", 0)
	good := cuda.Launch{Function: f, Grid: dim(1), Block: dim(1024), Params: make([]byte, 32)}
	for _, test := range []struct {
		change func(l *cuda.Launch)
		want   string
	}{
		{func(l *cuda.Launch) { l.Grid.X = 0 }, "kernel k: a grid of 0×1×1 blocks"},
		{func(l *cuda.Launch) { l.Grid.Y = 65536 }, "a grid of 1×65536×1 blocks"},
		{func(l *cuda.Launch) { l.Block.Y = 0 }, "blocks of 1024×0×1 threads"},
		{func(l *cuda.Launch) { l.Block = cuda.Dim{X: 1, Y: 1, Z: 65} }, "blocks of 1×1×65 threads"},
		{func(l *cuda.Launch) { l.Block.Y = 2 }, "blocks of 2048 threads; it may have 1024"},
		{func(l *cuda.Launch) { l.Params = l.Params[1:] }, "31 bytes of parameters; it takes 32"},
		{func(l *cuda.Launch) { l.Shared = 45057 }, "45057 bytes of dynamic shared memory; the function allows at most 0"},
		{func(l *cuda.Launch) { l.Function = nil }, "launch of a function of another device"},
	} {
		l := good
		test.change(&l)
		fails(t, b.stream.Launch(l), test.want)
	}
	l := good
	l.Shared = 45056 // 48 KiB with the kernel's 4096 static bytes, which needs no opt-in
	b.check(b.stream.Launch(l))
	b.check(b.stream.Wait())

	m, err := b.device.Load([]byte(entry("ret;")))
	b.check(err)
	_, err = m.Function("other", 0)
	fails(t, err, "the module has no kernel other")
	_, err = m.Function("k", 100<<10)
	fails(t, err, "kernel k with 106496 bytes of shared memory; a block may have 101376")
	big, err := m.Function("k", 90<<10)
	b.check(err)
	b.check(b.stream.Launch(cuda.Launch{Function: big, Grid: dim(1), Block: dim(1), Shared: 90 << 10, Params: make([]byte, 32)}))
	b.check(m.Unload())
	fails(t, b.stream.Launch(cuda.Launch{Function: big, Grid: dim(1), Block: dim(1), Params: make([]byte, 32)}), "whose module was unloaded")

	tuned := b.kernel(strings.Replace(entry("ret;"), "{", ".maxntid 128, 1, 1\n{", 1), "k", 0)
	fails(t, b.stream.Launch(cuda.Launch{Function: tuned, Grid: dim(1), Block: dim(129), Params: make([]byte, 32)}), "it may have 128")
}

// TestLoadErrors checks that an unsupported instruction is an error with its name and line.
func TestLoadErrors(t *testing.T) {
	old := Default()
	old.Major, old.Minor = 7, 0
	for _, test := range []struct {
		text, want string
		device     cuda.Properties
		version    int
	}{
		{text: "", want: "this is not PTX"},
		{text: entry("ret;"), want: "PTX for sm_75 cannot run on this device, which is sm_70", device: old},
		{text: entry("ret;"), want: "PTX 8.0 needs a driver for CUDA 12.0, and this one is for 11.8", version: 11080},
		{text: entry("\nfoo.bar.b32 %r1, %r2;"), want: "kernel k: PTX line 21: instruction foo.bar.b32 is not supported"},
		{text: entry("\nadd.s32 %r1, %r2, %rd1;"), want: "PTX line 21: add.s32: an operand does not have 32 bits"},
		{text: entry("\nadd.s64 %r1, %rd2, %rd1;"), want: "PTX line 21: add.s64: the result has another size than the register"},
		{text: entry("\nadd.s32 %r1, %r2;"), want: "PTX line 21: add.s32 in this form is not supported"},
		{text: entry("\nld.global.u64 %r1, [%a];"), want: "PTX line 21: ld.global.u64: a register smaller than the type"},
		{text: entry("\nld.texture.u32 %r1, [%a];"), want: "PTX line 21: ld.texture.u32 in this form"},
		{text: entry("\nmov.u32 %r1, %clock;"), want: "PTX line 21: mov.u32: register %clock is not supported"},
		{text: entry("\nbar.arrive 0, 32;"), want: "PTX line 21: bar.arrive in this form"},
		{text: entry("\nbra NOWHERE;"), want: "PTX line 21: NOWHERE is not declared"},
		{text: entry("\nmma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1},{%r3},{%r4},{%r1,%r2};"), want: "PTX line 21: mma.sync"},
		{text: entry("\nmma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1},{%r3},{%r4},{%r1,%r2};"), want: "PTX line 21: mma.sync"},
		{text: entry("\ncvt.f32.f16 %f1, %f2, %f3;"), want: "PTX line 21: cvt.f32.f16 in this form"},
		{text: entry("\nsetp.foo.s32 %p1, %r2, %r3;"), want: "PTX line 21: setp.foo.s32 in this form"},
		{text: entry("\natom.global.add.f16 %rs1, [%a], %rs1;"), want: "PTX line 21: atom.global.add.f16 in this form"},
		{text: entry("\nshfl.sync.left.b32 %r1, %r1, 1, 31, -1;"), want: "PTX line 21: shfl.sync.left.b32 in this form"},
	} {
		c := Config{Version: test.version}
		if test.device.Name != "" {
			c.Devices = []cuda.Properties{test.device}
		}
		b := newBench(t, c)
		_, err := b.device.Load([]byte(test.text))
		fails(t, err, test.want)
	}
}

// TestStreamIsLate checks that a stream executes its operations as late as possible, so that a host
// that does not wait sees no results.
func TestStreamIsLate(t *testing.T) {
	b := newBench(t, Config{})
	a := b.upload([]byte{1, 2, 3, 4})
	got := make([]byte, 4)
	b.check(b.stream.Download(got, a))
	if got[0] != 0 {
		t.Error("a download that nobody waited for is there")
	}
	second, err := b.device.NewStream()
	b.check(err)
	e, err := b.device.NewEvent()
	b.check(err)
	b.check(b.stream.Record(e))
	b.check(b.stream.Fill(a, 9, 4))
	// The second stream copies after the first has reached event e, and before its fill.
	b.check(second.Await(e))
	c, err := b.device.Alloc(4)
	b.check(err)
	b.check(second.Copy(c, a, 4))
	b.check(second.Wait())
	if got[3] != 4 {
		t.Error("await does not wait")
	}
	if other := b.download(c, 4); other[2] != 3 {
		t.Errorf("await went too far: %v", other)
	}
	later, err := b.device.NewEvent()
	b.check(err)
	_, err = later.Since(e)
	fails(t, err, "an event that is not set")
	b.check(b.stream.Record(later))
	b.check(b.stream.Wait())
	if ms, err := later.Since(e); err != nil || ms < 0 {
		t.Errorf("%g ms, %v", ms, err)
	}
}

// TestEventAgain checks that a stream awaits the most recent recording of an event, each time that
// it is recorded again, and no later one.
func TestEventAgain(t *testing.T) {
	b := newBench(t, Config{})
	second, err := b.device.NewStream()
	b.check(err)
	defer second.Close()
	e, err := b.device.NewEvent()
	b.check(err)
	defer e.Close()
	a, c := b.upload(words(0)), b.upload(words(0, 0))
	for i := range int64(2) {
		b.check(b.stream.Fill(a, byte(i+1), 4))
		b.check(b.stream.Record(e))
		b.check(second.Await(e))
		b.check(second.Copy(c+cuda.Ptr(4*i), a, 4))
		back, err := b.device.NewEvent()
		b.check(err)
		defer back.Close()
		b.check(second.Record(back))
		b.check(b.stream.Await(back))
	}
	b.check(b.stream.Fill(a, 9, 4))
	b.check(second.Wait())
	if got := toWords(b.download(c, 8)); got[0] != 0x01010101 || got[1] != 0x02020202 {
		t.Errorf("got %#x", got)
	}
}

// TestGraph captures launches and copies, and replays them on changed memory.
func TestGraph(t *testing.T) {
	b := newBench(t, Config{})
	f := b.kernel(entry("ld.global.u32 %r1, [%a]; add.u32 %r1, %r1, %n; st.global.u32 [%b], %r1; ret;"), "k", 0)
	a, o := b.upload(words(10)), b.upload(words(0))
	host := words(0)
	b.check(b.stream.Capture())
	fails(t, b.stream.Capture(), "is already capturing")
	fails(t, b.stream.Wait(), "wait while the stream is capturing")
	b.check(b.stream.Launch(cuda.Launch{Function: f, Grid: dim(1), Block: dim(1), Params: params(a, o, 0, 5)}))
	b.check(b.stream.Copy(a, o, 4))
	b.check(b.stream.Download(host, o))
	g, err := b.stream.EndCapture()
	b.check(err)
	b.check(b.stream.Wait())
	if host[0] != 0 {
		t.Error("capturing ran it")
	}
	for range 3 {
		b.check(b.stream.Replay(g))
	}
	b.check(b.stream.Wait())
	if host[0] != 25 {
		t.Errorf("three replays give %d", host[0])
	}
	b.check(g.Close())
	fails(t, b.stream.Replay(g), "closed graph")
}

// TestGraphTouchesOnlyWhatItNames checks that a replay faults if a pointer in memory leads to an
// allocation that its launches do not name.
func TestGraphTouchesOnlyWhatItNames(t *testing.T) {
	b := newBench(t, Config{})
	f := b.kernel(entry("ld.global.u64 %rd1, [%a]; ld.global.u32 %r1, [%rd1]; st.global.u32 [%b], %r1; ret;"), "k", 0)
	hidden, o := b.upload(words(3)), b.upload(words(0))
	a := b.upload(binary.LittleEndian.AppendUint64(nil, uint64(hidden)))
	l := cuda.Launch{Function: f, Grid: dim(1), Block: dim(1), Params: params(a, o, 0, 0)}
	b.check(b.stream.Launch(l))
	b.check(b.stream.Wait()) // outside of a graph, the kernel may follow the pointer
	b.check(b.stream.Capture())
	b.check(b.stream.Launch(l))
	g, err := b.stream.EndCapture()
	b.check(err)
	b.check(b.stream.Replay(g))
	fails(t, b.stream.Wait(), "memory that the graph's launches do not name when they are captured")

	// A replay also faults if a named allocation has been freed.
	b = newBench(t, Config{})
	f = b.kernel(entry("ld.global.u32 %r1, [%a]; ret;"), "k", 0)
	a = b.upload(words(1))
	b.check(b.stream.Capture())
	b.check(b.stream.Launch(cuda.Launch{Function: f, Grid: dim(1), Block: dim(1), Params: params(a, 0, 0, 0)}))
	g, err = b.stream.EndCapture()
	b.check(err)
	b.check(b.device.Free(a))
	b.check(b.stream.Replay(g))
	fails(t, b.stream.Wait(), "in memory of 4 bytes that was freed")
}

func TestPeers(t *testing.T) {
	b := newBench(t, Config{Devices: []cuda.Properties{Default(), Default()}})
	other, err := b.driver.Open(1)
	b.check(err)
	far, err := other.Alloc(4)
	b.check(err)
	near := b.upload(words(7))
	fails(t, b.stream.Copy(far, near, 4), "copy of memory of device 1 on device 0, which has no peer access to it")
	fails(t, b.device.EnablePeer(b.device), "expected another device of the same driver")
	b.check(b.device.EnablePeer(other))
	b.check(b.stream.Copy(far, near, 4))
	f := b.kernel(entry("ld.global.u32 %r1, [%a]; add.u32 %r1, %r1, 1; st.global.u32 [%a], %r1; ret;"), "k", 0)
	b.check(b.run(f, 1, 1, 0, params(far, 0, 0, 0)))
	if got := toWords(b.download(far, 4)); got[0] != 8 {
		t.Errorf("got %v", got)
	}
}

// TestHostErrorsPass checks that a device stays usable after an error of the host, and not after one of a kernel.
func TestHostErrorsPass(t *testing.T) {
	b := newBench(t, Config{})
	a := b.upload(words(1, 2))
	fails(t, b.stream.Copy(a, a+8, 1), "copy of 1 bytes at byte 8 of memory of 8 bytes")
	if got := toWords(b.download(a, 8)); got[1] != 2 {
		t.Errorf("got %v", got)
	}
	_, err := b.device.Load([]byte("x"))
	var fault *Fault
	if err == nil || errors.As(err, &fault) {
		t.Errorf("got %v", err)
	}
}
