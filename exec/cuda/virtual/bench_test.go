package virtual

import (
	"bytes"
	"strings"
	"testing"

	"pesti/conformance/testenv"
	"pesti/exec/cuda"
	"pesti/exec/cuda/kernels"
)

// BenchmarkKernels runs kernels on one processor, with a 135M model's shapes, and reports
// nanoseconds per warp instruction.
func BenchmarkKernels(b *testing.B) {
	const k, n = 576, 1536
	for _, kind := range []string{"q4_1", "q4_k", "q8_0", "f16"} {
		for _, exact := range []bool{false, true} {
			l, ok := cuda.LookupLayout(kind)
			if !ok || !exact && !l.Integer {
				continue
			}
			name := kind + "/fast"
			if exact {
				name = kind + "/exact"
			}
			b.Run(name, func(b *testing.B) {
				be := newBench(b, Config{Workers: 1})
				x := be.upload(bytes.Repeat(floatsOf(1.5, -0.75, 0.3), 256))
				k := k
				if l.Block > 32 {
					k = 768
				}
				w := be.upload(bytes.Repeat([]byte{0x3a, 0x35, 0x2c}, l.Size(n, k)/3))
				y, err := be.device.Alloc(4 * n)
				be.check(err)
				p := cuda.Product{X: x, K: uint32(k), M: 1}
				p.Ops[0] = cuda.Operand{Weight: cuda.Weight{Data: w, Type: l.Code, Rows: n}, Out: y}
				call, err := p.Call(be.device.Properties(), exact)
				be.check(err)
				be.measure(b, call)
			})
		}
	}
}

// measure launches a call repeatedly.
func (be *bench) measure(b *testing.B, call cuda.Call) {
	set, err := kernels.For(be.driver.Version(), 8, 9)
	be.check(err)
	_, text, err := set.Module(call.Kernel)
	be.check(err)
	f := be.kernel(string(text), call.Kernel, call.Shared)
	l := cuda.Launch{Function: f, Grid: call.Grid, Block: call.Block, Shared: call.Shared, Params: call.Params}
	be.device.ResetCounters()
	before := testenv.ProcessorTime()
	for b.Loop() {
		be.check(be.stream.Launch(l))
		be.check(be.stream.Wait())
	}
	c := be.device.Counters()[0]
	b.ReportMetric(float64(testenv.ProcessorTime()-before)/float64(c.Instructions.All()), "ns/instruction")
	b.ReportMetric(float64(c.Instructions.All())/float64(c.Launches), "instructions")
}

// BenchmarkInstructions measures instructions alone, in a loop of 64.
func BenchmarkInstructions(b *testing.B) {
	for _, in := range []string{
		"add.s32 %r1, %r1, %t;", "mov.b32 %r1, %t;", "add.s64 %rd1, %rd1, %a;", "mul.wide.u32 %rd1, %t, %n;",
		"fma.rn.f32 %f1, %f2, %f3, %f1;", "mul.f32 %f1, %f2, %f3;", "dp4a.s32.s32 %r1, %t, %n, %r1;",
		"cvt.rn.f32.s32 %f1, %t;", "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd2];", "ld.global.f32 %f1, [%rd3];",
		"ld.shared.v4.u32 {%r1,%r2,%r3,%r4}, [%rd4];", "ld.shared.v4.u32 {%r1,%r2,%r3,%r4}, [sm];", "st.shared.f32 [%rd5], %f1;",
		"shfl.sync.bfly.b32 %r1, %t, 1, 31, -1;", "setp.lt.s32 %p1, %t, %n;", "selp.b32 %r1, %t, %n, %p1;",
		"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1,%r2,%r3,%r4},{%r5,%r6,%r7,%r8},{%r9,%r10},{%r1,%r2,%r3,%r4};",
		"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1,%r2},{%r5},{%r9},{%r1,%r2};",
	} {
		name, _, _ := strings.Cut(in, " ")
		b.Run(name, func(b *testing.B) {
			be := newBench(b, Config{Workers: 1})
			a := be.upload(make([]byte, 1024))
			f := be.kernel(entry(`mul.wide.u32 %rd1, %t, 16; add.u64 %rd2, %a, %rd1; mov.u64 %rd4, sm; add.u64 %rd4, %rd4, %rd1;
				mul.wide.u32 %rd1, %t, 4; add.u64 %rd3, %a, %rd1; mov.u64 %rd5, sm; add.u64 %rd5, %rd5, %rd1;
				st.shared.v4.f32 [%rd4], {%f1,%f1,%f1,%f1}; mov.f32 %f2, 0f3fc00000; mov.f32 %f3, 0f3f812345; bar.sync 0;
				mov.u32 %r20, 0; L: `+strings.Repeat(in, 64)+` add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, %n; @%p2 bra L; ret;`), "k", 0)
			l := cuda.Launch{Function: f, Grid: dim(1), Block: dim(32), Params: params(a, 0, 0, 100)}
			be.device.ResetCounters()
			before := testenv.ProcessorTime()
			for b.Loop() {
				be.check(be.stream.Launch(l))
				be.check(be.stream.Wait())
			}
			c := be.device.Counters()[0]
			b.ReportMetric(float64(testenv.ProcessorTime()-before)/float64(c.Instructions.All()), "ns/instruction")
		})
	}
}

// BenchmarkLoad measures loading a module, which every program on the virtual device does at its start.
func BenchmarkLoad(b *testing.B) {
	set, err := kernels.For(12090, 8, 9)
	if err != nil {
		b.Fatal(err)
	}
	for _, kernel := range []string{"attention_f16_64", "gemv_1", "embed"} {
		_, text, err := set.Module(kernel)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(kernel, func(b *testing.B) {
			be := newBench(b, Config{})
			b.SetBytes(int64(len(text)))
			before, n := testenv.ProcessorTime(), 0
			for ; b.Loop(); n++ {
				m, err := be.device.Load(text)
				be.check(err)
				be.check(m.Unload())
			}
			b.ReportMetric((testenv.ProcessorTime()-before).Seconds()*1e3/float64(n), "processor-ms")
		})
	}
}
