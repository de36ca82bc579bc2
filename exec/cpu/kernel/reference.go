package kernel

import (
	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/ops/ref"
)

// referenceRows are the reference kernels, which run the functions of ops/ref. If the split is "one", worker 0
// computes the step.
var referenceRows = []Row{
	{"ref.get_rows", "portable", bindRefGetRows},
	{"ref.scale", "portable", bindRefScale},
	{"ref.rms_norm", "portable", bindRefRMSNorm},
	{"ref.matmul", "portable", bindRefMatmul},
	{"ref.add_bias", "portable", bindRefAddBias},
	{"ref.add", "portable", bindRefAdd},
	{"ref.mul", "portable", bindRefMul},
	{"ref.silu", "portable", bindRefSiLU},
	{"ref.gelu_tanh", "portable", bindRefGELUTanh},
	{"ref.gelu_erf", "portable", bindRefGELUErf},
	{"ref.rope", "portable", bindRefRope},
	{"ref.kv_write", "portable", bindRefKVWrite},
	{"ref.attn_scores", "portable", bindRefAttnScores},
	{"ref.softmax", "portable", bindRefSoftmax},
	{"ref.attn_values", "portable", bindRefAttnValues},
}

func bindRefGetRows(b *binder) Func {
	table := b.weight("table")
	ids, y, n, vocab := b.i32("ids"), b.f32("y"), b.int("n"), b.int("vocab")
	scale, split, rows := b.float("scale"), b.split(), b.rows()
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		for m := lo; m < hi; m++ {
			if id := int(ids[m]); id >= 0 && id < vocab {
				row := y[m*n : (m+1)*n]
				table.gather(row, m, id)
				ref.Scale(row, row, scale)
			}
		}
	}
}

func bindRefMatmul(b *binder) Func {
	x, y, k, n := b.f32("x"), b.f32("y"), b.int("k"), b.int("n")
	w := b.weight("w")
	res := b.optionalF32("res")
	rest, split, rows := b.Scratch, b.split(), b.rows()
	row := scratch[float32](b, &rest, k)
	return func(r *Run) {
		lo, hi := split.of(n)
		for j := lo; j < hi; j++ {
			w.row(row, j)
			for m := range rows(r) {
				sum := float32(ref.Dot(x[m*k:(m+1)*k], row))
				if res != nil {
					sum += res[m*n+j]
				}
				y[m*n+j] = sum
			}
		}
	}
}

func bindRefRMSNorm(b *binder) Func {
	w, group, eps := b.f32("w"), b.int("group"), b.float("eps")
	return b.unary(func(y, x []float32) { ref.RMSNorm(y, x, w, group, eps) })
}

func bindRefScale(b *binder) Func {
	factor := b.float("factor")
	return b.unary(func(y, x []float32) { ref.Scale(y, x, factor) })
}

func bindRefAddBias(b *binder) Func {
	bias := b.f32("bias")
	return b.unary(func(y, x []float32) { ref.AddBias(y, x, bias) })
}

func bindRefSiLU(b *binder) Func     { return b.unary(ref.SiLU) }
func bindRefGELUTanh(b *binder) Func { return b.unary(ref.GELUTanh) }
func bindRefGELUErf(b *binder) Func  { return b.unary(ref.GELUErf) }

// unary binds f to the rows of x and y.
func (b *binder) unary(f func(y, x []float32)) Func {
	x, y, n, split, rows := b.f32("x"), b.f32("y"), b.int("n"), b.split(), b.rows()
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		f(y[lo*n:hi*n], x[lo*n:hi*n])
	}
}

func bindRefAdd(b *binder) Func { return b.binary(ref.Add) }
func bindRefMul(b *binder) Func { return b.binary(ref.Mul) }

// binary binds f to the rows of a, b and y.
func (b *binder) binary(f func(y, x0, x1 []float32)) Func {
	x0, x1, y, n, split, rows := b.f32("a"), b.f32("b"), b.f32("y"), b.int("n"), b.split(), b.rows()
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		f(y[lo*n:hi*n], x0[lo*n:hi*n], x1[lo*n:hi*n])
	}
}

func bindRefRope(b *binder) Func {
	x, y, pos := b.f32("x"), b.f32("y"), b.i32("pos")
	width := b.int("heads") * b.int("head_dim")
	rotary, split, rows := b.rotary(), b.split(), b.rows()
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		rotary.Rope(y[lo*width:hi*width], x[lo*width:hi*width], pos[lo:hi])
	}
}

// refCache binds a cache for the unfused kernels. Each position has a row of width elements.
func (b *binder) refCache(role string, width int) *ref.KV {
	c := &ref.KV{Positions: b.int("positions"), Width: width,
		Pages: b.i32("pages"), P: b.SeqPages, Ring: b.int("ring") != 0}
	switch o := b.operand(role); o.Format {
	case "f32":
		c.F32 = view[float32](o.Data)
	case "f16":
		c.F16 = view[uint16](o.Data)
	case "f8_e4m3":
		c.FP8 = o.Data
	case "q8_0":
		if c.Q8 = o.Data; width%numfmt.BlockLen != 0 {
			b.fail("operand %s is q8_0, which needs a multiple of %d elements in a row, found %d", role, numfmt.BlockLen, width)
		}
	default:
		b.fail("operand %s is %s, expected one of %v", role, o.Format, plan.CacheFormats())
	}
	return c
}

func bindRefKVWrite(b *binder) Func {
	c := b.refCache("cache", b.int("width"))
	x, pos, seq, split, rows := b.f32("x"), b.i32("pos"), b.i32("seq"), b.split(), b.rows()
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		ref.KVWrite(c, x[lo*c.Width:hi*c.Width], pos[lo:hi], seq[lo:hi])
	}
}

// geometry binds the shape of an unfused attention. Its scores have C columns.
func (b *binder) geometry() ref.Heads {
	return ref.Heads{Heads: b.int("heads"), KVHeads: b.int("kv_heads"), HeadDim: b.int("head_dim"),
		Window: b.int("window"), Positions: b.Ctx}
}

func bindRefAttnScores(b *binder) Func {
	g, scale := b.geometry(), b.float("scale")
	keys := b.refCache("kcache", g.KVHeads*g.HeadDim)
	q, y, pos, seq := b.f32("q"), b.f32("y"), b.i32("pos"), b.i32("seq")
	rest, split, rows := b.Scratch, b.split(), b.rows()
	row := scratch[float32](b, &rest, keys.Width)
	in, out := g.Heads*g.HeadDim, g.Heads*g.Positions
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		ref.AttnScores(y[lo*out:hi*out], q[lo*in:hi*in], keys, pos[lo:hi], seq[lo:hi], g, scale, row)
	}
}

func bindRefSoftmax(b *binder) Func {
	x, y, n, split, rows := b.f32("x"), b.f32("y"), b.int("heads")*b.Ctx, b.split(), b.rows()
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		ref.Softmax(y[lo*n:hi*n], x[lo*n:hi*n], b.Ctx)
	}
}

func bindRefAttnValues(b *binder) Func {
	g := b.geometry()
	values := b.refCache("vcache", g.KVHeads*g.HeadDim)
	probs, y, pos, seq := b.f32("probs"), b.f32("y"), b.i32("pos"), b.i32("seq")
	rest, split, rows := b.Scratch, b.split(), b.rows()
	acc := scratch[float64](b, &rest, g.HeadDim)
	row := scratch[float32](b, &rest, values.Width)
	in, out := g.Heads*g.Positions, g.Heads*g.HeadDim
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		ref.AttnValues(y[lo*out:hi*out], probs[lo*in:hi*in], values, pos[lo:hi], seq[lo:hi], g, row, acc)
	}
}
