package virtual

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// each runs a body on up to 64 threads and returns %r4 of each.
func each(t *testing.T, threads int, body string) []uint32 {
	t.Helper()
	b := newBench(t, Config{})
	out := b.upload(make([]byte, 4*threads))
	f := b.kernel(entry(`mul.wide.u32 %rd1, %t, 4; add.u64 %rd1, %a, %rd1; mov.u32 %r4, 0;
		`+body+`
		st.global.u32 [%rd1], %r4; ret;`), "k", 0)
	b.check(b.run(f, 1, threads, 0, params(out, 0, 0, 0)))
	return toWords(b.download(out, 4*threads))
}

func TestWarps(t *testing.T) {
	for _, test := range []struct {
		body string
		want func(i int) int // of thread i of 64
	}{
		{"shfl.sync.bfly.b32 %r4, %t, 5, 31, -1;", func(i int) int { return i ^ 5 }},
		{"shfl.sync.bfly.b32 %r4|%p1, %t, 16, 0x1007, -1; @!%p1 add.u32 %r4, %r4, 100;", func(i int) int { // segments of 16 lanes, bounded to 8
			if j := i%32 ^ 16; j <= i%32&16|7 {
				return i ^ 16
			}
			return i + 100
		}},
		{"shfl.sync.up.b32 %r4|%p1, %t, 3, 0, -1; @!%p1 add.u32 %r4, %r4, 100;", func(i int) int {
			if i%32 < 3 {
				return i + 100
			}
			return i - 3
		}},
		{"shfl.sync.down.b32 %r4|%p1, %t, 3, 31, -1; @!%p1 add.u32 %r4, %r4, 100;", func(i int) int {
			if i%32 > 28 {
				return i + 100
			}
			return i + 3
		}},
		{"and.b32 %r5, %t, 3; shfl.sync.idx.b32 %r4, %t, %r5, 31, -1;", func(i int) int { return i&^31 + i&3 }},
		{"shfl.sync.idx.b32 %r4, %t, 2, 0x1c1f, -1;", func(i int) int { return i&^3 + 2 }}, // lane 2 of each four
		{"setp.lt.u32 %p1, %t, 40; vote.sync.ballot.b32 %r4, %p1, -1;", func(i int) int {
			if i < 32 {
				return -1
			}
			return 255
		}},
		{"setp.lt.u32 %p1, %t, 40; vote.sync.all.pred %p2, %p1, -1; vote.sync.any.pred %p3, !%p1, -1; vote.sync.uni.pred %p4, %p1, -1; selp.b32 %r4, 1, 0, %p2; @%p3 add.u32 %r4, %r4, 2; @%p4 add.u32 %r4, %r4, 4;", func(i int) int {
			if i < 32 {
				return 5
			}
			return 2
		}},
		{"setp.lt.u32 %p1, %t, 40; @!%p1 bra A; activemask.b32 %r4; A:", func(i int) int {
			switch {
			case i < 32:
				return -1
			case i < 40:
				return 255
			}
			return 0
		}},
		{"redux.sync.add.s32 %r4, %t, -1;", func(i int) int { return 496 + i/32*1024 }},
		{"redux.sync.max.s32 %r4, %t, -1;", func(i int) int { return i | 31 }},
		{"mov.u32 %r5, %laneid; mov.u32 %r6, %warpid; mov.u32 %r7, %ntid.x; mad.lo.u32 %r4, %r6, %r7, %r5;", func(i int) int { return i%32 + i/32*64 }},
		{"mov.u32 %r4, %lanemask_lt;", func(i int) int { return 1<<(i%32) - 1 }},
		// A loop whose number of iterations is the thread's number, with an exit in the middle.
		{`L: setp.ge.u32 %p1, %r4, %t; @%p1 bra E; add.u32 %r4, %r4, 1; setp.eq.u32 %p2, %r4, 50; @%p2 bra F; bra.uni L;
			F: add.u32 %r4, %r4, 1000; E: shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1;`, func(i int) int {
			if i >= 50 {
				return 1050
			}
			return i
		}},
		// A switch whose paths reconverge before the shuffle.
		{`T: .branchtargets A, B, C, B; and.b32 %r5, %t, 3; brx.idx %r5, T;
			A: add.u32 %r4, %r4, 1; bra.uni E; B: add.u32 %r4, %r4, 10; bra.uni E; C: add.u32 %r4, %r4, 100;
			E: shfl.sync.bfly.b32 %r4, %r4, 1, 31, -1;`, func(i int) int { return []int{10, 1, 10, 100}[i&3] }},
		// Nested divergence.
		{`and.b32 %r5, %t, 1; setp.eq.u32 %p1, %r5, 1; and.b32 %r5, %t, 2; setp.eq.u32 %p2, %r5, 2;
			@%p1 bra A; @%p2 bra B; add.u32 %r4, %r4, 1; bra.uni C; B: add.u32 %r4, %r4, 2; C: add.u32 %r4, %r4, 4; bra.uni D;
			A: @%p2 bra E; add.u32 %r4, %r4, 8; bra.uni F; E: add.u32 %r4, %r4, 16; F: add.u32 %r4, %r4, 32; D: bar.sync 0;`,
			func(i int) int { return []int{5, 40, 6, 48}[i&3] }},
		{"mov.b32 %f1, 0f3f800000; { .reg .pred q; .reg .f32 x; setp.gt.u32 q, %t, 10; mov.b32 x, %f1; selp.f32 x, x, 0f00000000, q; mov.b32 %r4, x; }",
			func(i int) int {
				if i > 10 {
					return 0x3f800000
				}
				return 0
			}},
		// A register that a lane reads before it is written is zero, and not the value of another lane.
		{"setp.lt.u32 %p1, %t, 10; @%p1 mov.u32 %r30, 5; add.u32 %r4, %r30, 1;", func(i int) int {
			if i < 10 {
				return 6
			}
			return 1
		}},
		// Shared memory by generic addresses, and each thread's own local memory.
		{"mul.wide.u32 %rd2, %t, 4; cvta.shared.u64 %rd3, sm; add.u64 %rd3, %rd3, %rd2; st.u32 [%rd3], %t; bar.sync 0; xor.b32 %r5, %t, 7; mul.wide.u32 %rd2, %r5, 4; mov.u64 %rd3, sm; add.u64 %rd3, %rd3, %rd2; ld.shared.u32 %r4, [%rd3];",
			func(i int) int { return i ^ 7 }},
		{".local .align 4 .b8 depot[16]; mov.u64 %rd2, depot; cvta.local.u64 %rd3, %rd2; isspacep.local %p1, %rd3; st.local.u32 [%rd2+4], %t; ld.u32 %r4, [%rd3+4]; @!%p1 add.u32 %r4, %r4, 1000;",
			func(i int) int { return i }},
		{"st.shared.v2.u32 [sm], {7, 8}; bar.sync 0; mov.u32 %r5, sm; ld.shared.v2.u32 {_, %r4}, [%r5];", func(i int) int { return 8 }},
	} {
		for i, got := range each(t, 64, test.body) {
			if want := uint32(test.want(i)); got != want {
				t.Errorf("%s\nthread %d: got %d, want %d", test.body, i, int32(got), int32(want))
				break
			}
		}
	}
}

// TestAtomics lets each thread of each block take a number. No number occurs twice, in any order.
func TestAtomics(t *testing.T) {
	for _, workers := range []int{1, 2, 5} {
		b := newBench(t, Config{Workers: workers})
		a, out := b.upload(words(0, 100, 1<<31, 0, 0)), b.upload(make([]byte, 4*640))
		f := b.kernel(entry(`atom.global.add.u32 %r1, [%a], 1; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %b, %rd1;
			mov.u32 %r2, %ctaid.x; mad.lo.u32 %r2, %r2, 64, %t; add.u32 %r3, %r2, 1; st.global.u32 [%rd1], %r3;
			red.global.min.s32 [%a+4], %r2; atom.global.max.s32 %r4, [%a+8], %r2; atom.global.cas.b32 %r5, [%a+12], 0, %r3;
			mov.u32 %r7, 0; L: atom.global.add.u32 %r6, [%a+16], 1; add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, 200; @%p1 bra L; ret;`), "k", 0)
		b.check(b.run(f, 10, 64, 0, params(a, out, 0, 0)))
		if got := toWords(b.download(a, 20)); got[0] != 640 || got[1] != 0 || got[2] != 639 || got[3] == 0 || got[3] > 640 || got[4] != 200*640 {
			t.Errorf("%d workers: %v", workers, got)
		}
		seen := map[uint32]bool{}
		for _, v := range toWords(b.download(out, 4*640)) {
			seen[v] = true
		}
		if len(seen) != 640 || seen[0] {
			t.Errorf("%d workers: %d numbers", workers, len(seen))
		}
	}
}

// TestLastBlock checks that the last block to arrive sums the results of the others, in any order.
func TestLastBlock(t *testing.T) {
	const blocks, threads = 37, 64
	b := newBench(t, Config{Workers: 3})
	count, parts, out := b.upload(words(0)), b.upload(make([]byte, 4*blocks*threads)), b.upload(make([]byte, 4*threads))
	f := b.kernel(testdata(t, "compiled.ptx"), "last", 0)
	p := binary.LittleEndian.AppendUint64(nil, uint64(count))
	p = binary.LittleEndian.AppendUint64(p, uint64(parts))
	p = binary.LittleEndian.AppendUint64(p, uint64(out))
	for range 2 { // the first launch sets the counter back to zero
		b.check(b.run(f, blocks, threads, 0, p))
		for i, got := range toFloats(b.download(out, 4*threads)) {
			var want float32
			for j := range blocks {
				want += float32(i)*1.5 + float32(j)
			}
			if got != want {
				t.Fatalf("thread %d: got %g, want %g", i, got, want)
			}
		}
	}
}

// TestMatrices checks mma of each shape and type against sums in Go. It places matrix elements by the formulas of the PTX
// manual, independently of the interpreter's tables.
func TestMatrices(t *testing.T) {
	halfBits := func(x float64) uint32 { return half.encode(x, nearest, false) }
	for _, test := range []struct {
		opcode  string
		m, k    int
		bits    int
		integer bool
		encode  func(x float64) uint32
	}{
		{"m8n8k16.row.col.s32.s8.s8.s32", 8, 16, 8, true, func(x float64) uint32 { return uint32(uint8(int8(x))) }},
		{"m16n8k16.row.col.s32.s8.s8.s32", 16, 16, 8, true, func(x float64) uint32 { return uint32(uint8(int8(x))) }},
		{"m16n8k32.row.col.s32.s8.s8.s32", 16, 32, 8, true, func(x float64) uint32 { return uint32(uint8(int8(x))) }},
		{"m16n8k8.row.col.f32.f16.f16.f32", 16, 8, 16, false, halfBits},
		{"m16n8k16.row.col.f32.f16.f16.f32", 16, 16, 16, false, halfBits},
		{"m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, 16, false, func(x float64) uint32 { return brain.encode(x, nearest, false) }},
		{"m16n8k32.row.col.f32.e4m3.e4m3.f32", 16, 32, 8, false, func(x float64) uint32 { return fp8e4m3.encode(x, nearest, true) }},
	} {
		rng := rand.New(rand.NewPCG(1, 1))
		var a, b, c [32][32]float64 // a[row][k], b[k][column], c[row][column]
		for i := range a {
			for j := range a {
				a[i][j], b[i][j], c[i][j] = float64(rng.IntN(256)-128), float64(rng.IntN(256)-128), float64(rng.IntN(2000)-1000)
				if !test.integer {
					a[i][j], b[i][j] = float64(rng.IntN(17)-8)/4, float64(rng.IntN(17)-8)/4
				}
			}
		}
		per := 32 / test.bits
		na, nb, nd := test.m*test.k/32/per, 8*test.k/32/per, test.m*8/32
		var regs []uint32 // of each lane: a, b, c
		for lane := range 32 {
			group, in := lane/4, lane%4
			for r := range na {
				var v uint32
				for e := range per {
					row, column := group, in*per+e
					if test.m == 16 && r%2 == 1 {
						row += 8
					}
					if test.m == 16 && r >= 2 {
						column += test.k / 2
					}
					v |= test.encode(a[row][column]) << (e * test.bits)
				}
				regs = append(regs, v)
			}
			for r := range nb {
				var v uint32
				for e := range per {
					v |= test.encode(b[in*per+e+r*test.k/2][group]) << (e * test.bits)
				}
				regs = append(regs, v)
			}
			for r := range nd {
				x := c[group+r/2*8][in*2+r%2]
				if test.integer {
					regs = append(regs, uint32(int32(x)))
				} else {
					regs = append(regs, math.Float32bits(float32(x)))
				}
			}
		}
		be := newBench(t, Config{})
		in, out := be.upload(words(regs...)), be.upload(make([]byte, 4*32*nd))
		each := na + nb + nd
		var body strings.Builder
		list := func(from, n int) string {
			var s []string
			for i := range n {
				s = append(s, "%r"+strconv.Itoa(from+i))
			}
			return "{" + strings.Join(s, ",") + "}"
		}
		body.WriteString("mul.wide.u32 %rd1, %t, " + strconv.Itoa(4*each) + "; add.u64 %rd1, %a, %rd1;\n")
		for i := range each {
			body.WriteString("ld.global.u32 %r" + strconv.Itoa(i) + ", [%rd1+" + strconv.Itoa(4*i) + "];\n")
		}
		kind := test.opcode[strings.Index(test.opcode, "col.")+4:][:1] + "32"
		cs := list(na+nb, nd)
		if kind == "f32" {
			body.WriteString("mov.b32 %f0, %r" + strconv.Itoa(na+nb) + ";\n")
			for i := range nd {
				body.WriteString("mov.b32 %f" + strconv.Itoa(i) + ", %r" + strconv.Itoa(na+nb+i) + ";\n")
			}
			cs = strings.ReplaceAll(list(0, nd), "%r", "%f")
		}
		body.WriteString("mma.sync.aligned." + test.opcode + " " + cs + "," + list(0, na) + "," + list(na, nb) + "," + cs + ";\n")
		body.WriteString("mul.wide.u32 %rd1, %t, " + strconv.Itoa(4*nd) + "; add.u64 %rd1, %b, %rd1;\n")
		for i := range nd {
			reg := strings.Split(strings.Trim(cs, "{}"), ",")[i]
			body.WriteString("st.global.b32 [%rd1+" + strconv.Itoa(4*i) + "], " + reg + ";\n")
		}
		f := be.kernel(entry(body.String()+"ret;"), "k", 0)
		be.check(be.run(f, 1, 32, 0, params(in, out, 0, 0)))
		got := toWords(be.download(out, 4*32*nd))
		for i, g := range got {
			lane, r := i/nd, i%nd
			row, column := lane/4+r/2*8, lane%4*2+r%2
			want := c[row][column]
			for k := range test.k {
				want += a[row][k] * b[k][column]
			}
			have := float64(int32(g))
			if !test.integer {
				have = float64(math.Float32frombits(g))
			}
			if have != want {
				t.Errorf("%s: row %d, column %d: got %g, want %g", test.opcode, row, column, have, want)
				break
			}
		}
	}
}

// TestLoadMatrices loads four matrices of 8×8 numbers. Each lane has the address of one row of 16 bytes.
func TestLoadMatrices(t *testing.T) {
	fill := `mul.wide.u32 %rd2, %t, 16; mov.u64 %rd3, sm; add.u64 %rd3, %rd3, %rd2; mov.u32 %r5, 0;
		L: mul.lo.u32 %r6, %t, 8; add.u32 %r6, %r6, %r5; cvt.u16.u32 %rs1, %r6; mul.wide.u32 %rd4, %r5, 2; add.u64 %rd4, %rd3, %rd4;
		st.shared.u16 [%rd4], %rs1; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 8; @%p1 bra L; bar.sync 0;
		mov.u32 %r7, sm; mad.lo.u32 %r7, %t, 16, %r7;`
	for i := range 4 {
		regs := "{%r10,%r11,%r12,%r13}"
		for trans, want := range map[string]func(lane int) uint32{
			"": func(lane int) uint32 {
				v := uint32(64*i + lane/4*8 + lane%4*2)
				return v | (v+1)<<16
			},
			".trans": func(lane int) uint32 {
				v := uint32(64*i + lane%4*16 + lane/4)
				return v | (v+8)<<16
			},
		} {
			body := fill + "ldmatrix.sync.aligned.m8n8.x4" + trans + ".shared.b16 " + regs + ", [%r7]; mov.u32 %r4, %r1" + strconv.Itoa(i) + ";"
			for lane, got := range each(t, 32, body) {
				if got != want(lane) {
					t.Errorf("matrix %d%s, lane %d: got %#x, want %#x", i, trans, lane, got, want(lane))
					break
				}
			}
		}
	}
}

// TestCopies checks that cp.async of fewer bytes than its size fills the rest with zeros, and that groups complete in
// order.
func TestCopies(t *testing.T) {
	b := newBench(t, Config{})
	a, out := b.upload(words(1, 2, 3, 4, 5, 6, 7, 8)), b.upload(make([]byte, 8*32))
	f := b.kernel(entry(`mov.u32 %r1, sm; mad.lo.u32 %r1, %t, 32, %r1; mov.u32 %r2, 8;
		cp.async.cg.shared.global [%r1], [%a], 16; cp.async.commit_group; cp.async.ca.shared.global.L2::128B [%r1+16], [%a+16], 16, %r2; cp.async.commit_group;
		cp.async.wait_group 1; ld.shared.u32 %r3, [%r1+12]; cp.async.wait_all; ld.shared.v4.u32 {_, %r4, %r5, _}, [%r1+16];
		mad.lo.u32 %r3, %r3, 100, %r4; mul.wide.u32 %rd1, %t, 8; add.u64 %rd1, %b, %rd1; st.global.v2.u32 [%rd1], {%r3, %r5}; ret;`), "k", 0)
	b.check(b.run(f, 1, 32, 0, params(a, out, 0, 0)))
	for i, v := range toWords(b.download(out, 8*32)) {
		if want := []uint32{406, 0}[i%2]; v != want {
			t.Fatalf("word %d: got %d, want %d", i, v, want)
		}
	}
}

// TestFP8 checks E4M3 against its definition: the largest number is 448, and there is no infinity.
func TestFP8(t *testing.T) {
	value := func(b uint32) float64 {
		sign, e, m := 1-2*float64(b>>7), int(b>>3&15), float64(b&7)
		switch {
		case b&127 == 127:
			return math.NaN()
		case e == 0:
			return sign * math.Ldexp(m, -9)
		}
		return sign * math.Ldexp(8+m, e-10)
	}
	b := newBench(t, Config{})
	var all []uint32
	for i := range uint32(256) {
		all = append(all, i)
	}
	in, out := b.upload(words(all...)), b.upload(make([]byte, 4*256))
	f := b.kernel(entry(`mul.wide.u32 %rd1, %t, 4; add.u64 %rd2, %a, %rd1; add.u64 %rd3, %b, %rd1; ld.global.u32 %r1, [%rd2];
		cvt.u16.u32 %rs1, %r1; cvt.rn.f16x2.e4m3x2 %r2, %rs1; mov.b32 {%rs2, %rs3}, %r2; cvt.f32.f16 %f1, %rs2; st.global.f32 [%rd3], %f1; ret;`), "k", 0)
	b.check(b.run(f, 1, 256, 0, params(in, out, 0, 0)))
	for i, got := range toFloats(b.download(out, 4*256)) {
		if want := value(uint32(i)); float64(got) != want && (want == want || got == got) {
			t.Errorf("%#x: got %g, want %g", i, got, want)
		}
	}
	rng := rand.New(rand.NewPCG(2, 2))
	var x []float32
	for range 500 {
		x = append(x, float32(rng.NormFloat64()*math.Exp2(float64(rng.IntN(24)-12))))
	}
	x = append(x, 0, 448, 449, 464, 465, 1e9, -1e9, float32(math.Inf(1)), float32(math.Inf(-1)), 0x1p-10, 0x1p-9, 0x1.8p-10, 0x1.8p-9)
	in, out = b.upload(floatsOf(x...)), b.upload(make([]byte, 4*len(x)))
	f = b.kernel(entry(`mul.wide.u32 %rd1, %t, 4; add.u64 %rd2, %a, %rd1; add.u64 %rd3, %b, %rd1; ld.global.f32 %f1, [%rd2];
		cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, 0f00000000; shr.u16 %rs1, %rs1, 8; cvt.u32.u16 %r1, %rs1; st.global.u32 [%rd3], %r1; ret;`), "k", 0)
	b.check(b.run(f, 1, len(x), 0, params(in, out, 0, 0)))
	for i, got := range toWords(b.download(out, 4*len(x))) {
		want, nearest := uint32(0), math.Inf(1)
		for c := range uint32(127) {
			d := math.Abs(math.Min(math.Abs(float64(x[i])), 448) - value(c))
			if d < nearest || d == nearest && c&1 == 0 {
				want, nearest = c, d
			}
		}
		want |= math.Float32bits(x[i]) >> 31 << 7
		if got != want {
			t.Errorf("%g: got %#x, want %#x", x[i], got, want)
		}
	}
}

// TestShipped loads every embedded module.
func TestShipped(t *testing.T) {
	files, err := filepath.Glob("../kernels/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("no modules: %v", err)
	}
	b := newBench(t, Config{})
	for _, name := range files {
		text, err := os.ReadFile(name)
		b.check(err)
		if _, err := b.device.Load(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDeterministic checks that results do not depend on the number of blocks that run concurrently.
func TestDeterministic(t *testing.T) {
	var first []byte
	for _, workers := range []int{1, 2, 7} {
		b := newBench(t, Config{Workers: workers})
		out := b.upload(make([]byte, 4*1000*64))
		f := b.kernel(entry(`mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, 64, %t; cvt.rn.f32.u32 %f1, %r1; sqrt.rn.f32 %f1, %f1; ex2.approx.f32 %f1, %f1;
			mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %a, %rd1; add.f32 %f1, %f1, %f30; st.global.f32 [%rd1], %f1; mov.f32 %f30, %f1; ret;`), "k", 0)
		b.check(b.run(f, 1000, 64, 0, params(out, 0, 0, 0)))
		got := b.download(out, 4*1000*64)
		if first == nil {
			first = got
		} else if string(first) != string(got) {
			t.Errorf("%d workers give other bits", workers)
		}
	}
}
