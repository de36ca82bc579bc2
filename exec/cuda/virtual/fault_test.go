package virtual

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pesti/exec/cuda"
)

// TestFaults provokes each fault. A report names kernel, block, thread and line, and describes the
// fault. %a is 256 bytes of which the first 128 are written, %b is memory that was freed, %c is the
// address of another device's memory.
func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name, body, want string
		threads          int // 0 means 64
	}{
		{"behind the end", "add.u64 %rd1, %a, 256; st.global.u32 [%rd1], 7; ret;", "thread (0,0,0), PTX line 20: st.global.u32: writes 4 bytes at byte 256 of memory of 256 bytes", 0},
		{"far behind the end", "add.u64 %rd1, %a, 4096; ld.global.u32 %r1, [%rd1]; ret;", "3840 bytes behind the end of memory of 256 bytes", 0},
		{"before the begin", "ld.global.u32 %r1, [%a+-4]; ret;", "4 bytes before memory of 256 bytes", 0},
		{"only some lanes", "mul.wide.u32 %rd1, %t, 4; add.u64 %rd1, %a, %rd1; st.global.u32 [%rd1+128], %t; ret;", "thread (32,0,0), PTX line 20: st.global.u32: writes 4 bytes at byte 256 of memory of 256 bytes", 0},
		{"null", "mov.u64 %rd1, 8; ld.global.u32 %r1, [%rd1]; ret;", "a null pointer plus 8", 0},
		{"nowhere", "mov.u64 %rd1, 0x123456789abc0; ld.global.u32 %r1, [%rd1]; ret;", "0x123456789abc0, which is in no memory of a device", 0},
		{"freed", "ld.global.u32 %r1, [%b]; ret;", "in memory of 64 bytes that was freed", 0},
		{"of another device", "ld.global.u32 %r1, [%c]; ret;", "memory of a device that is no peer", 0},
		{"never written", "ld.global.u32 %r1, [%a+128]; ret;", "ld.global.u32: reads 4 bytes at byte 128 of memory of 256 bytes: byte 128 was never written", 0},
		{"written in part", "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 0; @!%p1 bra E; st.global.u8 [%a+128], 1; ld.global.u32 %r1, [%a+128]; E: ret;", "byte 129 was never written", 0},
		{"misaligned", "ld.global.u32 %r1, [%a+2]; ret;", "ld.global.u32: misaligned address", 0},
		{"misaligned vector", "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%a+8]; ret;", "ld.global.v4.u32: misaligned address", 0},
		{"misaligned shared", "mul.lo.u32 %r1, %t, 6; st.shared.u32 [%r1], 1; ret;", "thread (1,0,0), PTX line 20: st.shared.u32: misaligned address", 0},
		{"behind shared", "mov.u32 %r1, 4096; st.shared.u32 [%r1], 1; ret;", "st.shared.u32: writes 4 bytes at byte 4096 of 4096 bytes of shared memory", 0},
		{"shared never written", "ld.shared.u32 %r1, [sm]; ret;", "ld.shared.u32: reads 4 bytes at byte 0 of shared memory: which was never written", 0},
		{"shared written in part", "setp.eq.u32 %p1, %t, 0; @!%p1 bra E; st.shared.u8 [sm+1], 1; ld.shared.u16 %r1, [sm]; E: ret;", "reads 2 bytes at byte 0 of shared memory: which was never written", 0},
		{"race: write, read", "setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [sm], 5; ld.shared.u32 %r1, [sm]; ret;", "thread (1,0,0), PTX line 20: ld.shared.u32: reads 4 bytes at byte 0 of shared memory: race: thread 0 of the block wrote it, with no barrier between", 0},
		{"race: write, read in another warp", "setp.eq.u32 %p1, %t, 0; @!%p1 bra A; st.shared.u32 [sm], 5; A: setp.ne.u32 %p1, %t, 40; @%p1 bra E; ld.shared.u32 %r1, [sm]; E: ret;", "thread (40,0,0), PTX line 20: ld.shared.u32: reads 4 bytes at byte 0 of shared memory: race: thread 0", 0},
		// The reading warp runs first here; this must also be reported as a race.
		{"race: read, write in another warp", "mul.wide.u32 %rd1, %t, 4; mov.u64 %rd2, sm; add.u64 %rd2, %rd2, %rd1; st.shared.u32 [%rd2], %t; bar.sync 0; setp.eq.u32 %p1, %t, 3; @!%p1 bra A; ld.shared.u32 %r1, [sm+8]; A: setp.ne.u32 %p1, %t, 40; @%p1 bra E; st.shared.u32 [sm+8], 9; E: ret;", "thread (40,0,0), PTX line 20: st.shared.u32: writes 4 bytes at byte 8 of shared memory: race: thread 3 of the block read it", 0},
		{"race: two writes", "st.shared.u32 [sm], %t; ret;", "thread (1,0,0), PTX line 20: st.shared.u32: writes 4 bytes at byte 0 of shared memory: race: thread 0 of the block wrote it", 0},
		{"race: bytes", "and.b32 %r1, %t, 31; cvt.u64.u32 %rd1, %r1; mov.u64 %rd2, sm; add.u64 %rd2, %rd2, %rd1; st.shared.u8 [%rd2], %t; ret;", "thread (32,0,0), PTX line 20: st.shared.u8: writes 1 bytes at byte 0 of shared memory: race: thread 0 of the block wrote it", 0},
		{"race: word of bytes", "cvt.u64.u32 %rd1, %t; mov.u64 %rd2, sm; add.u64 %rd2, %rd2, %rd1; st.shared.u8 [%rd2], %t; ld.shared.u32 %r1, [sm]; ret;", "race: thread 1 of the block wrote it", 0},
		{"race: atomic, read", "setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [sm], 0; bar.sync 0; atom.shared.add.u32 %r1, [sm], 1; ld.shared.u32 %r2, [sm]; ret;", "race: an atomic instruction wrote it", 0},
		{"race: within a warp, another age", "mul.wide.u32 %rd1, %t, 4; mov.u64 %rd2, sm; add.u64 %rd2, %rd2, %rd1; st.shared.u32 [%rd2], %t; bar.warp.sync -1; ld.shared.u32 %r1, [sm+8]; st.shared.u32 [%rd2], 1; ret;", "thread (2,0,0), PTX line 20: st.shared.u32: writes 4 bytes at byte 8 of shared memory: race: threads of warp 0 read it", 32},
		{"divergent barrier", "setp.lt.u32 %p1, %t, 5; @%p1 bra A; bar.sync 0; bra.uni E; A: bar.sync 1; E: ret;", "PTX line 20: divergent barrier: this thread is not at the barrier, but thread 5 of the block is", 0},
		{"divergent barrier: left", "setp.lt.u32 %p1, %t, 5; @%p1 ret; bar.sync 0; ret;", "thread (0,0,0), PTX line 20: divergent barrier: this thread has left the kernel, but thread 5 of the block waits", 0},
		{"divergent barrier: another warp", "setp.lt.u32 %p1, %t, 32; @%p1 ret; bar.sync 0; ret;", "divergent barrier: it waits for all threads of the block, and those of warp 0 have left the kernel", 0},
		{"divergent barrier: another number", "setp.lt.u32 %p1, %t, 32; @%p1 bra A; bar.sync 0; ret; A: bar.sync 1; ret;", "and those of warp 1 wait at barrier 0 in PTX line 20", 0},
		{"too few threads", "bar.sync 1, 96; ret;", "barrier 1 waits for 96 threads, but 64 arrive", 0},
		{"shuffle with a lane elsewhere", "setp.lt.u32 %p1, %t, 5; @%p1 bra E; shfl.sync.bfly.b32 %r1, %t, 1, 31, -1; E: ret;", "thread (5,0,0), PTX line 20: shfl.sync.bfly.b32 names lane 0, which is not at this instruction", 0},
		{"shuffle that does not name itself", "shfl.sync.bfly.b32 %r1, %t, 1, 31, 1; ret;", "does not name the lane that performs it", 0},
		{"shuffle from no lane", "shfl.sync.bfly.b32 %r1, %t, 16, 31, -1; ret;", "thread (0,0,0), PTX line 20: shfl.sync.bfly.b32 reads lane 16, which is not at this instruction", 16},
		{"mma in half a warp", "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1,%r2}, {%r3}, {%r4}, {%r1,%r2}; ret;", "lane 16 of the warp is not active", 16},
		{"copy that nobody waits for", "setp.eq.u32 %p1, %t, 0; @!%p1 bra E; mov.u32 %r1, sm; cp.async.ca.shared.global [%r1], [%a], 16; cp.async.commit_group; ld.shared.u32 %r2, [sm]; E: ret;", "which cp.async fills and no thread has waited for", 0},
		{"copy from outside", "mov.u32 %r1, sm; cp.async.ca.shared.global [%r1], [%a+256], 16; ret;", "cp.async.ca.shared.global: reads 16 bytes at byte 256 of memory of 256 bytes", 0},
		{"atomic on what was never written", "atom.global.add.u32 %r1, [%a+128], 1; ret;", "byte 128 was never written", 0},
		{"trap", "setp.eq.u32 %p1, %t, 33; @%p1 trap; ret;", "thread (33,0,0), PTX line 20: trap", 0},
		{"for ever", "A: add.u32 %r1, %r1, 1; bra.uni A;", "instructions without ending", 0},
		{"for ever, with barriers", "A: bar.sync 0; bra.uni A;", "instructions without ending", 0},
		{"index of a jump", "T: .branchtargets A, B; brx.idx %t, T; A: ret; B: ret;", "thread (2,0,0), PTX line 20: brx.idx: index 2 of a table of 2", 0},
		{"different spaces", "cvta.shared.u64 %rd1, sm; setp.eq.u32 %p1, %t, 0; selp.b64 %rd1, %rd1, %a, %p1; st.u32 [%rd1], 0; ret;", "lanes of a warp access different spaces", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := Default()
			b := newBench(t, Config{Devices: []cuda.Properties{p, p}, Limit: 1 << 17})
			other, err := b.driver.Open(1)
			b.check(err)
			c, err := other.Alloc(64)
			b.check(err)
			a, err := b.device.Alloc(256)
			b.check(err)
			b.check(b.stream.Upload(a, make([]byte, 128)))
			gone := b.upload(make([]byte, 64))
			b.check(b.device.Free(gone))
			// The body has no line breaks, so all of it is in line 20.
			f := b.kernel(entry(test.body), "k", 0)
			threads := test.threads
			if threads == 0 {
				threads = 64
			}
			err = b.run(f, 2, threads, 0, params(a, gone, c, 0))
			var fault *Fault
			if !errors.As(err, &fault) {
				t.Fatalf("got %v, want a fault: %s", err, test.want)
			}
			text := err.Error()
			if !strings.Contains(text, test.want) || !strings.HasPrefix(text, "virtual device: kernel k, block (0,0,0), thread (") || strings.Contains(text, "\n") {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
			// All later calls except Close fail with the same error.
			if _, again := b.device.Alloc(1); again != err {
				t.Errorf("Alloc after a fault: %v", again)
			}
			if again := b.stream.Fill(a, 0, 1); again != err {
				t.Errorf("Fill after a fault: %v", again)
			}
			if again := b.stream.Wait(); again != err {
				t.Errorf("Wait after a fault: %v", again)
			}
			if err := b.device.Close(); err != nil {
				t.Errorf("Close after a fault: %v", err)
			}
		})
	}
}

// TestNoFaults runs correct kernels that are similar to the faulty ones of TestFaults.
func TestNoFaults(t *testing.T) {
	for name, body := range map[string]string{
		"barrier between":     "setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [sm], 5; bar.sync 0; ld.shared.u32 %r1, [sm]; ret;",
		"the same value":      "st.shared.u32 [sm], 5; ret;",
		"own word":            "mul.wide.u32 %rd1, %t, 4; mov.u64 %rd2, sm; add.u64 %rd2, %rd2, %rd1; st.shared.u32 [%rd2], %t; ld.shared.u32 %r1, [%rd2]; add.u32 %r1, %r1, 1; st.shared.u32 [%rd2], %r1; ret;",
		"own byte":            "cvt.u64.u32 %rd1, %t; mov.u64 %rd2, sm; add.u64 %rd2, %rd2, %rd1; st.shared.u8 [%rd2], %t; ld.shared.u8 %r1, [%rd2]; add.u32 %r1, %r1, 1; st.shared.u8 [%rd2], %r1; bar.sync 0; ld.shared.u32 %r1, [sm]; ld.shared.u8 %r2, [%rd2]; ret;",
		"bytes, then words":   "cvt.u64.u32 %rd1, %t; mov.u64 %rd2, sm; add.u64 %rd2, %rd2, %rd1; st.shared.u8 [%rd2], %t; bar.sync 0; ld.shared.v4.u32 {%r1,%r2,%r3,%r4}, [sm+16]; bar.sync 0; st.shared.u8 [%rd2], 7; ret;",
		"warp in step":        "setp.ge.u32 %p1, %t, 32; @%p1 bra E; mul.wide.u32 %rd1, %t, 4; mov.u64 %rd2, sm; add.u64 %rd2, %rd2, %rd1; st.shared.u32 [%rd2], %t; bar.warp.sync -1; ld.shared.u32 %r1, [sm+8]; bar.warp.sync -1; st.shared.u32 [%rd2], 1; E: ret;",
		"atomics":             "setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [sm], 0; bar.sync 0; atom.shared.add.u32 %r1, [sm], 1; bar.sync 0; ld.shared.u32 %r2, [sm]; ret;",
		"whole warps leave":   "setp.lt.u32 %p1, %t, 32; @%p1 ret; bar.warp.sync -1; ret;",
		"named lanes":         "setp.lt.u32 %p1, %t, 16; @!%p1 bra E; shfl.sync.bfly.b32 %r1, %t, 8, 31, 0xffff; E: ret;",
		"waited for":          "setp.eq.u32 %p1, %t, 0; @!%p1 bra E; mov.u32 %r1, sm; cp.async.ca.shared.global [%r1], [%a], 16; cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r2, [sm]; E: ret;",
		"barriers of a half":  "setp.lt.u32 %p1, %t, 32; @%p1 bra A; bar.sync 1, 32; ret; A: bar.sync 2, 32; ret;",
		"another block began": "setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [sm], 5; ret;",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{})
			a := b.upload(make([]byte, 256))
			if err := b.run(b.kernel(entry(body), "k", 0), 5, 64, 0, params(a, 0, 0, 0)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUninitializedAcrossBlocks checks that shared memory which another block has written counts as
// unwritten for the next block.
func TestUninitializedAcrossBlocks(t *testing.T) {
	b := newBench(t, Config{Workers: 1})
	f := b.kernel(entry("mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra A; st.shared.u32 [sm], 1; ret; A: ld.shared.u32 %r1, [sm]; ret;"), "k", 0)
	err := b.run(f, 2, 32, 0, params(0, 0, 0, 0))
	if err == nil || !strings.Contains(err.Error(), "block (1,0,0)") || !strings.Contains(err.Error(), "never written") {
		t.Errorf("got %v", err)
	}
}

// TestAcrossBlocks checks that a block's accesses to shared memory do not affect the checks of the
// next block on the same worker.
func TestAcrossBlocks(t *testing.T) {
	for name, body := range map[string]string{
		// The first block writes 16 bytes. The second block writes 4 of them, reads these, and then reads others.
		"part of 16 bytes": `mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra A; st.shared.v4.u32 [sm], {1,1,1,1}; bra.uni B; A: st.shared.u32 [sm], 1;
			B: bar.sync 0; ld.shared.u32 %r2, [sm]; @!%p1 ret; ld.shared.u32 %r2, [sm+4]; ret;`,
		// The first block ends without waiting for its asynchronous copy.
		"copy": `mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; mov.u32 %r2, sm; @%p1 bra A;
			cp.async.ca.shared.global [%r2], [%a], 4; cp.async.commit_group; ret;
			A: cp.async.wait_group 0; ld.shared.u32 %r2, [sm]; ret;`,
	} {
		b := newBench(t, Config{Workers: 1})
		err := b.run(b.kernel(entry(body), "k", 0), 2, 1, 0, params(b.upload(words(1)), 0, 0, 0))
		if err == nil || !strings.Contains(err.Error(), "block (1,0,0)") || !strings.Contains(err.Error(), "never written") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestFirstFault checks that the fault of the first block is reported, whichever worker runs first.
func TestFirstFault(t *testing.T) {
	for range 20 {
		b := newBench(t, Config{Workers: 4})
		f := b.kernel(entry("mov.u32 %r1, %ctaid.x; setp.ge.u32 %p1, %r1, 17; @%p1 trap; ret;"), "k", 0)
		err := b.run(f, 200, 32, 0, params(0, 0, 0, 0))
		if err == nil || !strings.Contains(err.Error(), "block (17,0,0)") {
			t.Fatalf("got %v", err)
		}
	}
}

// TestCancel cancels kernels at different instructions, and checks that all later ones are canceled until CancelOn(nil).
func TestCancel(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		blocks int
	}{
		"a loop":             {"A: add.u32 %r1, %r1, 1; bra.uni A;", 4},
		"a loop of barriers": {"A: bar.sync 0; bra.uni A;", 4},
		"short blocks":       {"ret;", 1 << 26},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{})
			done := make(chan struct{})
			b.driver.CancelOn(done)
			time.AfterFunc(20*time.Millisecond, func() { close(done) })
			if err := b.run(b.kernel(entry(c.body), "k", 0), c.blocks, 64, 0, params(0, 0, 0, 0)); !errors.Is(err, cuda.ErrCanceled) {
				t.Errorf("got %v", err)
			}
			b.driver.CancelOn(nil)
			if err := b.run(b.kernel(entry("ret;"), "k", 0), 1, 32, 0, params(0, 0, 0, 0)); err != nil {
				t.Errorf("the next kernel: %v", err)
			}
		})
	}
	b := newBench(t, Config{})
	f := b.kernel(entry("ret;"), "k", 0)
	done := make(chan struct{})
	close(done)
	b.driver.CancelOn(done)
	if err := b.run(f, 1, 32, 0, params(0, 0, 0, 0)); !errors.Is(err, cuda.ErrCanceled) {
		t.Errorf("with a closed channel: got %v, expected %v", err, cuda.ErrCanceled)
	}
	b.driver.CancelOn(nil)
	if err := b.run(f, 1, 32, 0, params(0, 0, 0, 0)); err != nil {
		t.Errorf("after a canceled launch: got %v, expected a device that can be used on", err)
	}
}
