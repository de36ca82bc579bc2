package kernel

import (
	"pesti/exec/plan"
	"pesti/ops/ref"
)

// A cache is one layer's keys or values; see ref.KV, whose addresses it computes for parts of
// rows.
type cache struct{ ref.KV }

// cache binds a cache whose rows have width elements.
func (b *binder) cache(role string, width int) cache {
	c := cache{ref.KV{Positions: b.int("positions"), Width: width,
		Pages: b.i32("pages"), P: b.SeqPages, Ring: b.int("ring") != 0}}
	switch o := b.operand(role); o.Format {
	case "f32":
		c.F32 = view[float32](o.Data)
	case "f16":
		c.F16 = view[uint16](o.Data)
	default:
		b.fail("operand %s is %s, expected f32 or f16", role, o.Format)
	}
	return c
}

// at is where element i of a position's row is.
func (c *cache) at(seq, pos, i int) int {
	row := seq*c.Positions + pos%c.Positions
	if !c.Ring {
		row = int(c.Pages[seq*c.P+pos/plan.PageTokens])*plan.PageTokens + pos%plan.PageTokens
	}
	return row*c.Width + i
}

// load reads len(dst) elements of a position's row from element i on.
func (c *cache) load(dst []float32, seq, pos, i int) {
	at := c.at(seq, pos, i)
	if c.F16 == nil {
		copy(dst, c.F32[at:at+len(dst)])
		return
	}
	src := c.F16[at : at+len(dst)]
	for j := range dst {
		dst[j] = f16(src[j])
	}
}

// store writes src to a position's row from element i on.
func (c *cache) store(seq, pos, i int, src []float32) {
	at := c.at(seq, pos, i)
	if c.F16 == nil {
		copy(c.F32[at:at+len(src)], src)
		return
	}
	dst := c.F16[at : at+len(src)]
	for j, x := range src {
		dst[j] = ref.F16(x)
	}
}

// round sets dst to what store and then load would give.
func (c *cache) round(dst, src []float32) {
	if c.F16 == nil {
		copy(dst, src)
		return
	}
	for j, x := range src {
		dst[j] = f16(ref.F16(x))
	}
}
