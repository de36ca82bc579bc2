package virtual

import (
	"slices"
	"strings"
	"testing"

	"pesti/exec/cuda"
)

// strided is a kernel of 13 instructions. Each thread loads 4 bytes at a + step·thread and stores 4
// bytes to shared memory at step·thread.
var strided = entry(`mul.lo.u32 %r1, %t, %n; cvt.u64.u32 %rd1, %r1; add.u64 %rd2, %a, %rd1; ld.global.f32 %f1, [%rd2];
	fma.rn.f32 %f1, %f1, %f1, %f1; dp4a.s32.s32 %r2, %r1, %r1, %r1; st.shared.f32 [%r1], 0f00000000; ret;`)

// TestCounters compares counters with figures computed by hand, for two blocks of one warp. A
// request touches a sector for each 32 bytes; a launch fetches each sector once, for all blocks.
func TestCounters(t *testing.T) {
	for _, test := range []struct {
		name            string
		offset          cuda.Ptr
		step            uint32
		sectors, least  int64 // of a request
		fetched         int64 // sectors of the launch
		passes, perPass int64
	}{
		{"side by side", 0, 4, 4, 4, 4, 1, 1},
		{"the same for all", 0, 0, 1, 1, 1, 1, 1},
		{"every other", 0, 8, 8, 4, 8, 2, 1},
		{"a sector each", 0, 32, 32, 4, 32, 8, 1},
		{"a line each", 0, 128, 32, 4, 32, 32, 1},
		{"an odd number of words apart", 0, 12, 12, 4, 12, 1, 1},
		{"side by side, not from a sector on", 16, 4, 5, 4, 5, 1, 1},
		{"the same for all, at a sector's end", 28, 0, 1, 1, 1, 1, 1},
	} {
		b := newBench(t, Config{})
		a := b.upload(make([]byte, 64*128))
		f := b.kernel(strided, "k", 0)
		b.check(b.run(f, 2, 32, 0, params(a+test.offset, 0, 0, test.step)))
		var in cuda.Instructions
		in[cuda.Integer], in[cuda.Convert], in[cuda.Memory], in[cuda.Float] = 2*2, 2*1, 2*(4+2), 2*1
		in[cuda.Dot], in[cuda.Move], in[cuda.Control] = 2*1, 2*1, 2*1
		want := []cuda.Counts{{
			Kernel: "k", Launches: 1, Instructions: in, Threads: 2 * 13 * 32, Flops: 2 * 32 * 2, DotOps: 2 * 32 * 8,
			Global:   cuda.Traffic{Requests: 2, Read: 2 * 128, Parts: 2 * test.sectors, Least: 2 * test.least},
			Shared:   cuda.Traffic{Requests: 2, Written: 2 * 128, Parts: 2 * test.passes, Least: 2 * test.perPass},
			Constant: cuda.Traffic{Requests: 8, Read: 2 * 32 * 28},
			Fetched:  32 * test.fetched,
		}}
		if list := b.device.Counters(); !slices.Equal(list, want) {
			t.Errorf("%s: counted\n%+v, want\n%+v", test.name, list, want)
		}
		b.check(b.run(f, 2, 32, 0, params(a+test.offset, 0, 0, test.step)))
		want[0].Add(&want[0], 1)
		if list := b.device.Counters(); !slices.Equal(list, want) {
			t.Errorf("%s: two launches counted\n%+v, want\n%+v", test.name, list, want)
		}
		if b.device.ResetCounters(); len(b.device.Counters()) != 0 {
			t.Errorf("%s: there are counters after a reset", test.name)
		}
	}
}

// TestCountersOfKinds compares the counts of other instructions with figures computed by hand, for
// one block of one warp.
func TestCountersOfKinds(t *testing.T) {
	words := func(requests, bytes, parts, least int64) cuda.Traffic {
		return cuda.Traffic{Requests: requests, Read: bytes, Parts: parts, Least: least}
	}
	written := func(t cuda.Traffic) cuda.Traffic { t.Read, t.Written = 0, t.Read; return t }
	const (
		whole = "mov.u32 %r9, 16; "            // distance of lanes in bytes
		apart = "mov.u32 %r9, 32; "            // lanes read half of each sector
		pairs = "and.b32 %t, %t, 30; " + whole // two lanes share an address
		half  = "setp.ge.u32 %p1, %t, 16; @%p1 ret; " + whole
		back  = "xor.b32 %t, %t, 31; " + whole
		fifth = "mul.lo.u32 %t, %t, 5; and.b32 %t, %t, 31; " + whole
		at    = "mul.lo.u32 %r1, %t, %r9; cvt.u64.u32 %rd1, %r1; add.u64 %rd1, %a, %rd1; "
	)
	for _, test := range []struct {
		name, body     string
		global, shared cuda.Traffic
		fetched        int64
		stored         int64
		ints, floats   int64 // of tensor cores
	}{
		{"16 bytes", whole + at + "ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1];", words(1, 512, 16, 16), cuda.Traffic{}, 16, 0, 0, 0},
		{"16 bytes from the last lane to the first", back + at + "ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1];", words(1, 512, 16, 16), cuda.Traffic{}, 16, 0, 0, 0},
		{"16 bytes in another order", fifth + at + "ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1];", words(1, 512, 16, 16), cuda.Traffic{}, 16, 0, 0, 0},
		{"16 of 32 bytes", apart + at + "ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1];", words(1, 512, 32, 16), cuda.Traffic{}, 32, 0, 0, 0},
		{"16 bytes of half a warp", half + at + "ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1];", words(1, 256, 8, 8), cuda.Traffic{}, 8, 0, 0, 0},
		{"8 bytes of two lanes each", pairs + at + "ld.global.v2.u32 {%r2,%r3}, [%rd1];", words(1, 256, 16, 4), cuda.Traffic{}, 16, 0, 0, 0},
		{"twice the same", whole + at + "ld.global.u32 %r2, [%rd1]; ld.global.u32 %r2, [%rd1+8];", words(2, 256, 32, 8), cuda.Traffic{}, 16, 0, 0, 0},
		{"stores", whole + at + "st.global.u32 [%rd1], %r2;", written(words(1, 128, 16, 4)), cuda.Traffic{}, 0, 16, 0, 0},
		{"atomics at one place", "red.global.add.u32 [%a], %t;", cuda.Traffic{Requests: 1, Read: 128, Written: 128, Parts: 1, Least: 1}, cuda.Traffic{}, 1, 1, 0, 0},
		{"shared, 16 bytes", whole + at + "st.shared.v4.u32 [%r1], {%r1,%r1,%r1,%r1};", cuda.Traffic{}, written(words(1, 512, 4, 4)), 0, 0, 0, 0},
		{"shared, 16 of 32 bytes", apart + at + "st.shared.v4.u32 [%r1], {%r1,%r1,%r1,%r1};", cuda.Traffic{}, written(words(1, 512, 8, 4)), 0, 0, 0, 0},
		{"shared, 8 bytes 16 apart", whole + at + "st.shared.v2.u32 [%r1], {%r1,%r1};", cuda.Traffic{}, written(words(1, 256, 4, 2)), 0, 0, 0, 0},
		{"shared, 8 bytes of half a warp", half + at + "st.shared.v2.u32 [%r1], {%r1,%r1};", cuda.Traffic{}, written(words(1, 128, 2, 1)), 0, 0, 0, 0},
		{"an asynchronous copy", whole + at + "mov.u32 %r2, sm; add.u32 %r2, %r2, %r1; cp.async.cg.shared.global [%r2], [%rd1], 16; cp.async.wait_all;",
			words(1, 512, 16, 16), written(words(1, 512, 4, 4)), 16, 0, 0, 0},
		{"mma of integers", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1,%r2,%r3,%r4},{%r5,%r6,%r7,%r8},{%r9,%r10},{%r1,%r2,%r3,%r4};",
			cuda.Traffic{}, cuda.Traffic{}, 0, 0, 2 * 16 * 8 * 32, 0},
		{"mma of floats", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4},{%r5,%r6,%r7,%r8},{%r9,%r10},{%f1,%f2,%f3,%f4};",
			cuda.Traffic{}, cuda.Traffic{}, 0, 0, 0, 2 * 16 * 8 * 16},
	} {
		b := newBench(t, Config{})
		a := b.upload(make([]byte, 1024))
		text := strings.Replace(entry(test.body+" ret;"), ".target sm_75", ".target sm_80", 1)
		b.check(b.run(b.kernel(text, "k", 0), 1, 32, 0, params(a, 0, 0, 0)))
		c := b.device.Counters()[0]
		if c.Global != test.global || c.Shared != test.shared || c.Fetched != 32*test.fetched || c.Stored != 32*test.stored ||
			c.TensorInts != test.ints || c.TensorFloats != test.floats {
			t.Errorf("%s: counted %+v", test.name, c)
		}
	}
}

// TestPasses checks that two lanes which access the same word take one pass, and that inactive lanes do not count.
func TestPasses(t *testing.T) {
	var at longs
	for i := range at {
		at[i] = uint64(i / 2 * 128) // pairs of lanes access the same word, and all words are in one bank
	}
	if taken, least := passes(&at, 0xffffffff, 32, 4); taken != 16 || least != 1 {
		t.Errorf("16 words of a bank take %d passes, at least %d", taken, least)
	}
	if taken, least := passes(&at, 0b1111, 32, 4); taken != 2 || least != 1 {
		t.Errorf("2 words of a bank take %d passes, at least %d", taken, least)
	}
	if taken, least := passes(&at, 0, 32, 4); taken != 0 || least != 0 {
		t.Errorf("nothing takes %d passes, at least %d", taken, least)
	}
}
