package virtual

import (
	"encoding/binary"
	"math"
	"testing"

	"pesti/exec/cuda"
)

// A bench is a device with a stream, for one test.
type bench struct {
	t      testing.TB
	driver *Driver
	device *Device
	stream cuda.Stream
}

func newBench(t testing.TB, c Config) *bench {
	t.Helper()
	driver := New(c)
	device, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, driver, device.(*Device), stream}
}

func (b *bench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// upload copies data to new memory.
func (b *bench) upload(data []byte) cuda.Ptr {
	b.t.Helper()
	p, err := b.device.Alloc(int64(len(data)))
	b.check(err)
	b.check(b.stream.Upload(p, data))
	return p
}

func (b *bench) download(p cuda.Ptr, n int) []byte {
	b.t.Helper()
	data := make([]byte, n)
	b.check(b.stream.Download(data, p))
	b.check(b.stream.Wait())
	return data
}

// kernel loads a module and returns a kernel of it.
func (b *bench) kernel(text, name string, shared int) cuda.Function {
	b.t.Helper()
	m, err := b.device.Load([]byte(text))
	b.check(err)
	f, err := m.Function(name, shared)
	b.check(err)
	return f
}

// entry wraps a body in a kernel k whose parameters are three pointers and a number, read into %a, %b,
// %c and %n; %t is the thread.
func entry(body string) string {
	return `.version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .align 8 .b8 k_param_0[32])
{
	.reg .pred %p<10>;
	.reg .b16 %rs<20>;
	.reg .b32 %r<40>;
	.reg .f32 %f<40>;
	.reg .b64 %rd<40>;
	.reg .f64 %fd<10>;
	.reg .b64 %a, %b, %c;
	.reg .b32 %n, %t;
	.shared .align 16 .b8 sm[4096];
	ld.param.u64 %a, [k_param_0];
	ld.param.u64 %b, [k_param_0+8];
	ld.param.u64 %c, [k_param_0+16];
	ld.param.u32 %n, [k_param_0+24];
	mov.u32 %t, %tid.x;
` + body + `
}
`
}

// params are those of entry.
func params(a, b, c cuda.Ptr, n uint32) []byte {
	p := binary.LittleEndian.AppendUint64(nil, uint64(a))
	p = binary.LittleEndian.AppendUint64(p, uint64(b))
	p = binary.LittleEndian.AppendUint64(p, uint64(c))
	return binary.LittleEndian.AppendUint64(p, uint64(n))
}

func words(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func floatsOf(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func toWords(b []byte) []uint32 {
	v := make([]uint32, len(b)/4)
	for i := range v {
		v[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return v
}

func toFloats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

func dim(x int) cuda.Dim { return cuda.Dim{X: x, Y: 1, Z: 1} }

func (b *bench) run(f cuda.Function, grid, block int, shared int, p []byte) error {
	b.t.Helper()
	b.check(b.stream.Launch(cuda.Launch{Function: f, Grid: dim(grid), Block: dim(block), Shared: shared, Params: p}))
	return b.stream.Wait()
}
