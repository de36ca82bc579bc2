package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pesti/exec/cuda"
	"pesti/exec/cuda/kernels"
	"pesti/exec/cuda/virtual"
	"pesti/gguf/quant"
)

// A bench is a device with the modules of a target, which tests launch kernels on.
type bench struct {
	t       *testing.T
	dev     cuda.Device
	stream  cuda.Stream
	set     kernels.Set
	modules map[string]cuda.Module
}

// newBench opens a device for the modules of isa. It is a virtual device of that compute capability, or the real device
// that PESTI_DEVICE names. If the real device is too old for the modules, the test is skipped.
func newBench(t *testing.T, isa string) *bench {
	t.Helper()
	properties := virtual.Default()
	if _, err := fmt.Sscanf(isa, "sm_%1d%d", &properties.Major, &properties.Minor); err != nil {
		t.Fatal(err)
	}
	if isa == "sm_75" {
		properties.Shared = 64 << 10
	}
	b := &bench{t: t, modules: map[string]cuda.Module{}}
	driver, number := realDriver(t)
	if driver == nil {
		driver = virtual.New(virtual.Config{Devices: []cuda.Properties{properties}})
	}
	var err error
	b.dev, err = driver.Open(number)
	b.check(err)
	t.Cleanup(func() { b.dev.Close() })
	if p := b.dev.Properties(); 10*p.Major+p.Minor < 10*properties.Major+properties.Minor {
		t.Skipf("the device is sm_%d%d", p.Major, p.Minor)
	} else {
		b.set, err = kernels.Lookup(isa, driver.Version(), p.Major, p.Minor)
	}
	b.check(err)
	b.stream, err = b.dev.NewStream()
	b.check(err)
	return b
}

func (b *bench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// alloc returns memory to which nothing has been written.
func (b *bench) alloc(bytes int) cuda.Ptr {
	b.t.Helper()
	p, err := b.dev.Alloc(int64(bytes))
	b.check(err)
	return p
}

// put returns memory that holds data: bytes, or a slice of numbers.
func (b *bench) put(data any) cuda.Ptr {
	b.t.Helper()
	bytes, err := binary.Append(nil, binary.LittleEndian, data)
	b.check(err)
	p := b.alloc(len(bytes))
	b.check(b.stream.Upload(p, bytes))
	b.check(b.stream.Wait())
	return p
}

// get reads n numbers.
func get[T any](b *bench, p cuda.Ptr, n int) []T {
	b.t.Helper()
	out := make([]T, n)
	bytes := make([]byte, binary.Size(out))
	b.check(b.stream.Download(bytes, p))
	b.check(b.stream.Wait())
	if _, err := binary.Decode(bytes, binary.LittleEndian, out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// launch runs a kernel to its end.
func (b *bench) launch(call cuda.Call, err error) {
	b.t.Helper()
	b.check(err)
	name, ptx, err := b.set.Module(call.Kernel)
	b.check(err)
	if b.modules[name] == nil {
		b.modules[name], err = b.dev.Load(ptx)
		b.check(err)
	}
	f, err := b.modules[name].Function(call.Kernel, call.Shared)
	b.check(err)
	b.check(b.stream.Launch(cuda.Launch{Function: f, Grid: call.Grid, Block: call.Block, Shared: call.Shared, Params: call.Params}))
	b.check(b.stream.Wait())
}

// A matrix is a weight in the file's layout, with its values.
type matrix struct {
	kind   string
	n, k   int
	file   []byte
	values []float32
}

func newMatrix(rng *rand.Rand, kind string, n, k int) *matrix {
	info, ok := quant.ByName(kind)
	if !ok {
		panic("no type " + kind)
	}
	m := &matrix{kind, n, k, cuda.RandomWeight(rng, info, n, k), make([]float32, n*k)}
	if kind == "f8_e4m3" { // random bytes, of which some are NaN
		for i, v := range m.file {
			if v&0x7f == 0x7f {
				m.file[i] = 0
			}
		}
	}
	info.Dequantize(m.values, m.file)
	return m
}

// weight packs the matrix and puts it into memory.
func (b *bench) weight(m *matrix) cuda.Weight {
	b.t.Helper()
	l, ok := cuda.LookupLayout(m.kind)
	if !ok {
		b.t.Fatalf("no layout for %s", m.kind)
	}
	packed := make([]byte, l.Size(m.n, m.k))
	b.check(l.Pack(packed, m.file, m.n, m.k, 0, m.n))
	return cuda.Weight{Data: b.put(packed), Type: l.Code, Rows: uint32(m.n)}
}

func randoms(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func sameBits(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}
