package virtual

import (
	"errors"
	"strings"
	"testing"

	"pesti/exec/cuda"
)

// FuzzLoad checks that the device loads and runs any PTX or returns an error, never panics, and
// that a kernel accesses no memory outside its own.
func FuzzLoad(f *testing.F) {
	for _, body := range []string{
		"ret;", "add.s32 %r1, %r2, %r3; ret;", "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%a]; st.shared.v2.f32 [sm+8], {%f1,%f2}; ret;",
		"cvt.rn.f16x2.f32 %r1, %f1, %f2; cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2; setp.lt.or.f32 %p1|%p2, %f1, %f2, !%p3; ret;",
		"shfl.sync.idx.b32 %r1|%p1, %r2, %r3, 31, -1; vote.sync.ballot.b32 %r1, %p1, -1; redux.sync.add.s32 %r1, %r2, -1; ret;",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4},{%r1,%r2,%r3,%r4},{%r5,%r6},{%f1,%f2,%f3,%f4}; ret;",
		"atom.shared.cas.b32 %r1, [sm], 1, 2; red.global.add.u32 [%a], 1; bar.sync 0; bar.warp.sync -1; membar.gl; ret;",
		"mov.b64 {%r1,%r2}, %rd1; mov.b32 %r1, {%rs1,%rs2}; lop3.b32 %r1, %r2, %r3, %r4, 0x96; bfi.b32 %r1, %r2, %r3, 4, 5; ret;",
		"A: @%p1 bra B; add.u32 %r1, %r1, 1; bra A; B: brx.idx %r1, T; T: .branchtargets A, B; ret;",
		"cp.async.cg.shared.global [%r1], [%a], 16; cp.async.commit_group; cp.async.wait_group 0; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2,%r3,%r4}, [%r5]; ret;",
		"cvta.shared.u64 %rd1, sm; st.u32 [%rd1], 5; isspacep.shared %p1, %rd1; selp.b64 %rd1, %rd2, %rd3, %p1; exit;",
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		b := newBench(t, Config{Workers: 1, Limit: 20000})
		defer b.device.Close()
		text := strings.Replace(entry(body), "[4096]", "[64]", 1)
		m, err := b.device.Load([]byte(text))
		if err != nil {
			return
		}
		k, err := m.Function("k", 0)
		if err != nil {
			return
		}
		a := b.upload(make([]byte, 64))
		err = b.stream.Launch(cuda.Launch{Function: k, Grid: dim(2), Block: dim(40), Params: params(a, a, 0, 3)})
		if err == nil {
			err = b.stream.Wait()
		}
		var fault *Fault
		if err != nil && !errors.As(err, &fault) && !strings.Contains(err.Error(), "parameters") && !strings.Contains(err.Error(), "threads") {
			t.Errorf("%v", err)
		}
	})
}
