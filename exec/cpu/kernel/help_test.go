package kernel

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"pesti/conformance/testenv"
	"pesti/exec/cpu/isa"
	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/gguf/quant"
)

// guard is the number of guard bytes before and after each operand in tests.
const guard = 64

// memory is an operand with guard bytes around it.
type memory struct {
	all  []byte
	size int
}

func newMemory(size int) *memory {
	// A slice of 8-byte words makes the operand aligned to 8 bytes.
	words := make([]uint64, (size+2*guard+7)/8)
	all := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	for i := range all {
		all[i] = 0xa5
	}
	return &memory{all, size}
}

func (m *memory) data() []byte { return m.all[guard : guard+m.size : guard+m.size] }

func (m *memory) f32() []float32 { return view[float32](m.data()) }

func (m *memory) intact() bool {
	return bytes.Count(m.all[:guard], []byte{0xa5}) == guard &&
		bytes.Count(m.all[guard+m.size:], []byte{0xa5}) == len(m.all)-guard-m.size
}

// A call is one step with the memory of its operands. It can be bound for any number of workers.
type call struct {
	step    plan.Step
	mem     map[string]*memory
	ops     map[string]Operand
	isa     string // whose variants are bound
	scratch int
	ctx     int
	pages   int
	choices *Choices
}

func newCall(kernel, rows, split string, unit int64, params ...plan.Param) *call {
	return &call{
		step: plan.Step{Name: "test", Kernel: kernel, Rows: rows, Params: params, Split: plan.Split{By: split, Unit: unit}},
		mem:  map[string]*memory{}, ops: map[string]Operand{}, isa: "portable",
	}
}

// onlyISA restricts the matmul tests to one instruction set, for runs on a slow emulator.
var onlyISA = flag.String("isa", "", "test the matmul kernels of this instruction set alone")

// runnable returns the matmul kernels in all variants that this machine supports.
func runnable() []Matmul {
	return slices.DeleteFunc(Matmuls(), func(mm Matmul) bool {
		_, err := isa.UpTo(mm.ISA)
		return err != nil || *onlyISA != "" && mm.ISA != *onlyISA
	})
}

// runnableAndPortable is runnable, and before it the portable kernels if -isa leaves them out.
func runnableAndPortable() []Matmul {
	portable := slices.DeleteFunc(Matmuls(), func(mm Matmul) bool { return mm.ISA != "portable" })
	others := slices.DeleteFunc(runnable(), func(mm Matmul) bool { return mm.ISA == "portable" })
	return append(portable, others...)
}

// TestISA checks that the instruction set given by -isa is tested.
func TestISA(t *testing.T) {
	testenv.Inputs(t)
	if *onlyISA == "" {
		return
	}
	if _, err := isa.UpTo(*onlyISA); err != nil {
		t.Error(err)
	}
	if len(runnable()) == 0 {
		t.Errorf("there is no matmul kernel for %s", *onlyISA)
	}
}

// add gives the call an operand of size bytes.
func (c *call) add(role, format string, size int) *memory {
	m := newMemory(size)
	c.mem[role], c.ops[role] = m, Operand{Format: format, Data: m.data()}
	return m
}

// put gives the call an operand of float32 values.
func (c *call) put(role string, x []float32) *memory {
	m := c.add(role, "f32", 4*len(x))
	copy(m.f32(), x)
	return m
}

func (c *call) putInts(role string, x []int32) {
	copy(view[int32](c.add(role, "i32", 4*len(x)).data()), x)
}

// putWeight gives the call a weight of n rows of k elements in random blocks, and returns its values.
func (c *call) putWeight(rng *rand.Rand, role, matmul string, t quant.Type, n, k int) []float32 {
	info, _ := quant.ByName(t.String())
	elems := n * k
	m := c.add(role, t.String(), elems/info.BlockLen*info.BlockBytes)
	copy(m.data(), randomBlocks(rng, info, elems))
	o := Operand{Format: t.String(), Kernel: matmul, Data: m.data()}
	values := make([]float32, elems)
	info.Dequantize(values, m.data())
	if t == quant.F8E4M3 {
		o.Scales = randoms(rng, n, 0.01)
		for i := range values {
			values[i] *= o.Scales[i/k]
		}
	}
	c.ops[role] = o
	return values
}

// pack packs the weight of a role, n rows of k elements, into the layout of its kernel.
func (c *call) pack(role string, mm Matmul, n, k int) {
	if l, ok := LookupLayout(mm.Layout, mm.Type); ok {
		file, o := c.mem[role].data(), c.ops[role]
		m := c.add(role, mm.Type.String(), l.Size(n, k))
		l.Pack(m.data(), file, n, k, 0, l.Panels(n))
		o.Kernel, o.Layout, o.Data = mm.Name, mm.Layout, m.data()
		c.ops[role] = o
	}
}

func (c *call) bind(t testing.TB, worker, workers int) Func {
	t.Helper()
	f, err := Bind(&Binding{Choices: c.choices, Step: &c.step, Operands: c.ops, Scratch: newMemory(c.scratch).data(),
		Worker: worker, Workers: workers, Ctx: c.ctx, SeqPages: c.pages}, []string{"portable", c.isa})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// run fills the outputs with NaN, computes the step with a number of workers, one after the other, and
// checks the guard bytes. It begins with the last worker, so that a worker that wrongly reads what an
// earlier one writes, such as the cache, does not find it.
func (c *call) run(t testing.TB, workers int, r Run, outputs ...string) {
	t.Helper()
	for _, role := range outputs {
		data := c.mem[role].data()
		for i := range data {
			data[i] = 0xff
		}
	}
	for w := workers - 1; w >= 0; w-- {
		c.bind(t, w, workers)(&r)
	}
	for role, m := range c.mem {
		if !m.intact() {
			t.Fatalf("%s: bytes around operand %s were written", c.step.Kernel, role)
		}
	}
}

// randomBlocks returns elems weights in blocks with random integers and small random scales, of which
// some are zero or subnormal.
func randomBlocks(rng *rand.Rand, info *quant.Info, elems int) []byte {
	data := make([]byte, elems/info.BlockLen*info.BlockBytes)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	half := func(at int) {
		v := numfmt.F32ToF16(float32(rng.NormFloat64() * 0.01))
		switch rng.IntN(8) {
		case 0:
			v = 0
		case 1:
			v = uint16(rng.IntN(0x400)) // subnormal
		}
		data[at], data[at+1] = byte(v), byte(v>>8)
	}
	for at := 0; at < len(data); at += info.BlockBytes {
		for _, s := range info.Scales {
			if s.Bytes == 2 {
				half(at + s.At)
				continue
			}
			for b := data[at+s.At:][:s.Bytes]; !(math.Abs(float64(s.Read(b))) < 0.1); {
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
			}
		}
		switch info.Type {
		case quant.F8E4M3:
			if data[at]&0x7f == 0x7f { // NaN
				data[at] = 0
			}
		case quant.F16:
			half(at)
		case quant.F32, quant.BF16:
			v := math.Float32bits(float32(rng.NormFloat64()))
			b := []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}
			copy(data[at:at+info.BlockBytes], b[4-info.BlockBytes:])
		case quant.F64:
			v := math.Float64bits(rng.NormFloat64())
			for i := range 8 {
				data[at+i] = byte(v >> (8 * i))
			}
		}
	}
	return data
}

func randoms(rng *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * scale)
	}
	return x
}

// newGroup makes a matmul_group with one product for each of the row counts ns.
func newGroup(t testing.TB, rng *rand.Rand, mm Matmul, m, k int, ns []int) *call {
	params := []plan.Param{{Name: "k", Value: int64(k)}}
	for i, n := range ns {
		params = append(params, plan.Param{Name: fmt.Sprint("n", i), Value: int64(n)})
	}
	c := newCall("matmul_group", "T", "rows", 16, params...)
	c.scratch = scratchOf(mm.Act, m, k)
	c.putActivations(rng, mm.Act, m, k)
	for i, n := range ns {
		c.putWeight(rng, fmt.Sprint("w", i), mm.Name, mm.Type, n, k)
		c.pack(fmt.Sprint("w", i), mm, n, k)
		c.put(fmt.Sprint("out", i), make([]float32, m*n))
	}
	return c
}

// scratchOf returns the scratch that the signature of matmul_group gives for m rows of k activations.
func scratchOf(act string, m, k int) int {
	if act == "bf16" {
		return 256*m + 148736
	}
	return 40*k + 24576
}

// asUsed rounds weights as kernels for activations of format act do.
func asUsed(act string, w []float32) []float32 {
	if act == "bf16" {
		for i, v := range w {
			w[i] = numfmt.BF16ToF32(numfmt.F32ToBF16(v))
		}
	}
	return w
}

// putActivations adds operand x and returns its dequantized values.
func (c *call) putActivations(rng *rand.Rand, act string, m, k int) []float32 {
	return c.setActivations(act, m, k, randoms(rng, m*k, 1))
}

func (c *call) setActivations(act string, m, k int, x []float32) []float32 {
	if act == "f32" {
		c.put("x", x)
		return x
	}
	values := make([]float32, m*k)
	if act == "bf16" {
		mem := c.add("x", "bf16", 2*m*k)
		numfmt.EncodeBF16(mem.data(), x)
		numfmt.DecodeBF16(values, mem.data())
		return values
	}
	f := planarFormats[act]
	mem := c.add("x", act, m*f.bytes(k))
	for i := range m {
		row := mem.data()[i*f.bytes(k):][:f.bytes(k)]
		f.quantize(row, x[i*k:(i+1)*k])
		f.dequantize(values[i*k:(i+1)*k], row)
	}
	return values
}

// planarFormats has the reference functions of the planar formats.
var planarFormats = map[string]struct {
	bytes      func(k int) int
	quantize   func(row []byte, x []float32)
	dequantize func(x []float32, row []byte)
}{
	"q8x2": {numfmt.Q8x2Bytes, numfmt.QuantizeQ8x2, numfmt.DequantizeQ8x2},
	"q8":   {numfmt.Q8Bytes, numfmt.QuantizeQ8, numfmt.DequantizeQ8},
}

// pick returns one of two numbers at random.
func pick(rng *rand.Rand, a, b float32) float32 {
	if rng.IntN(2) == 0 {
		return a
	}
	return b
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}
