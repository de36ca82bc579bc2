package kernel

import (
	"unsafe"

	"pesti/exec/plan"
	"pesti/ops/ref"
)

// A cache is one layer's keys or values, in pages of plan.PageTokens positions. In a page the part
// of each head lies together, so that it is read from end to end: keys as [head_dim][16], which is
// how scores want them, values as [16][head_dim].
type cache struct {
	*parts
	data      []byte
	heads     int
	positions int     // of each sequence
	ring      bool    // position p lives at p mod positions, and table is ignored
	table     []int32 // [S·perSeq] page numbers
	perSeq    int
}

// part is the part of a head in the page that holds positions [16·page, 16·(page+1)) of a sequence.
func (c *cache) part(seq, page, head int) []byte {
	pages := c.positions / plan.PageTokens
	at := seq*pages + page%pages
	if !c.ring {
		at = int(c.table[seq*c.perSeq+page])
	}
	at = (at*c.heads + head) * c.bytes
	return c.data[at : at+c.bytes]
}

// A parts reads and writes the parts of pages, of dim elements for each position, in one format.
// It touches no element but those of the positions that it is asked for.
type parts struct {
	dim   int
	bytes int  // of a part
	half  bool // elements are float16 and nothing else, which some inner loops read as they are

	putKey   func(part []byte, at int, key []float32)   // stores the key of position at of the page
	putValue func(part []byte, at int, value []float32) // stores its value

	// keys sets columns [from, to) of tile [dim][16], and values rows [from, to) of tile
	// [16][stride], to what is stored for those positions.
	keys   func(tile []float32, part []byte, from, to int)
	values func(tile []float32, stride int, part []byte, from, to int)
}

// cacheParts are the formats of caches.
var cacheParts = map[string]func(v *vectors, dim int) *parts{
	"f32":     f32Parts,
	"f16":     f16Parts,
	"f8_e4m3": fp8Parts,
	"q8_0":    q8Parts,
}

// cache binds a cache for heads of dim elements.
func (b *binder) cache(role string, heads, dim int) cache {
	o := b.operand(role)
	c := cache{data: o.Data, heads: heads, positions: b.int("positions"), ring: b.int("ring") != 0,
		table: b.i32("pages"), perSeq: b.SeqPages}
	switch parts := cacheParts[o.Format]; {
	case parts == nil:
		b.fail("operand %s is %s, expected one of %v", role, o.Format, plan.CacheFormats())
	case o.Format == "q8_0" && dim%ref.Q8Block != 0:
		b.fail("operand %s is q8_0, which needs a multiple of %d elements in a head, found %d", role, ref.Q8Block, dim)
	default:
		c.parts = parts(b.vectors(), dim)
	}
	return c
}

func f32Parts(_ *vectors, dim int) *parts {
	return plainParts(dim, func(to, from []float32) { copy(to, from) }, func(to, from []float32) { copy(to, from) })
}

func f16Parts(v *vectors, dim int) *parts {
	p := plainParts(dim, v.widen, v.narrow)
	p.half = true
	return p
}

func fp8Parts(v *vectors, dim int) *parts { return plainParts(dim, v.widenE4M3, narrowE4M3) }

// plainParts are parts whose elements are of type E, in order and nothing else.
func plainParts[E float32 | uint16 | uint8](dim int, load func(to []float32, from []E), store func(to []E, from []float32)) *parts {
	const page = plan.PageTokens
	var zero E
	size := int(unsafe.Sizeof(zero))
	row := make([]E, dim)
	return &parts{
		dim: dim, bytes: page * dim * size,
		putKey: func(part []byte, at int, key []float32) {
			elems := view[E](part)
			store(row, key)
			for i, x := range row {
				elems[i*page+at] = x
			}
		},
		putValue: func(part []byte, at int, value []float32) {
			store(view[E](part)[at*dim:(at+1)*dim], value)
		},
		keys: func(tile []float32, part []byte, from, to int) {
			elems := view[E](part)
			if to-from == page {
				load(tile[:page*dim], elems)
				return
			}
			for i := 0; i < page*dim; i += page {
				load(tile[i+from:i+to], elems[i+from:i+to])
			}
		},
		values: func(tile []float32, stride int, part []byte, from, to int) {
			elems := view[E](part)
			if stride == dim {
				load(tile[from*dim:to*dim], elems[from*dim:to*dim])
				return
			}
			for j := from; j < to; j++ {
				load(tile[j*stride:][:dim], elems[j*dim:(j+1)*dim])
			}
		},
	}
}
