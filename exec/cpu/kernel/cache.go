package kernel

import (
	"fmt"
	"unsafe"

	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/ops/ref"
)

// A cache is one layer's keys or values, in pages of plan.PageTokens positions. The part of a page
// that belongs to one head is contiguous: keys as [head_dim][16], the order in which scores are
// computed, and values as [16][head_dim].
type cache struct {
	*cacheFormat
	data      []byte
	heads     int
	positions int     // of each sequence
	ring      bool    // position p is stored at p mod positions, and table is not used
	table     []int32 // [S·perSeq] page numbers
	perSeq    int     // pages of a sequence in table
}

// part returns a head's part of the page with positions [16·page, 16·(page+1)) of a sequence.
func (c *cache) part(seq, page, head int) []byte {
	pages := c.positions / plan.PageTokens
	at := seq*pages + page%pages
	if !c.ring {
		at = int(c.table[seq*c.perSeq+page])
	}
	at = (at*c.heads + head) * c.bytes
	return c.data[at : at+c.bytes]
}

// A CacheReader reads the rows of a cache, one of each position, as attention reads them.
type CacheReader struct {
	Width int // elements of a row, one head after the other
	Read  func(row []float32, seq, pos int)
}

// BindCacheReader returns a reader of the cache that b.Step writes as operand role.
func BindCacheReader(b *Binding, role string) (CacheReader, error) {
	bb := &binder{Binding: b}
	var r CacheReader
	switch b.Step.Kernel {
	case "attention":
		c := bb.cache(role, bb.int("kv_heads"), bb.int("head_dim"))
		if bb.err != nil {
			break
		}
		if r = (CacheReader{c.heads * c.dim, c.keyReader()}); role == "vcache" {
			r.Read = c.valueReader()
		}
	case "ref.kv_write":
		c := bb.refCache(role, bb.int("width"))
		r = CacheReader{c.Width, c.Load}
	default:
		bb.fail("found kernel %s, expected one that writes a cache of the processor", b.Step.Kernel)
	}
	if bb.err != nil {
		return CacheReader{}, fmt.Errorf("step %q: %w", b.Step.Name, bb.err)
	}
	return r, nil
}

func (c *cache) keyReader() func(row []float32, seq, pos int) {
	tile := make([]float32, c.dim*plan.PageTokens)
	return func(row []float32, seq, pos int) {
		page, at := pos/plan.PageTokens, pos%plan.PageTokens
		for head := range c.heads {
			c.keys(tile, c.part(seq, page, head), at, at+1)
			for i := range c.dim {
				row[head*c.dim+i] = tile[i*plan.PageTokens+at]
			}
		}
	}
}

func (c *cache) valueReader() func(row []float32, seq, pos int) {
	tile := make([]float32, c.dim*plan.PageTokens)
	return func(row []float32, seq, pos int) {
		page, at := pos/plan.PageTokens, pos%plan.PageTokens
		for head := range c.heads {
			c.values(tile, c.dim, c.part(seq, page, head), at, at+1)
			copy(row[head*c.dim:], tile[at*c.dim:(at+1)*c.dim])
		}
	}
}

// A cacheFormat reads and writes a head's part of a page, with dim elements for each position, in one
// element format. It accesses only the positions that it is asked for.
type cacheFormat struct {
	dim   int
	bytes int  // of a part
	half  bool // a part is an array of float16, which some inner loops read directly

	putKey   func(part []byte, at int, key []float32)   // stores the key of the page's position at
	putValue func(part []byte, at int, value []float32) // stores its value

	// keys loads positions [from, to) into the same columns of tile [dim][16], and values loads them
	// into the same rows of tile [16][stride].
	keys   func(tile []float32, part []byte, from, to int)
	values func(tile []float32, stride int, part []byte, from, to int)
}

// cacheFormats has the cache formats by their names in plans.
var cacheFormats = map[string]func(v *vectors, dim int) *cacheFormat{
	"f32":     f32Cache,
	"f16":     f16Cache,
	"f8_e4m3": fp8Cache,
	"q8_0":    q8Cache,
}

// cache binds a cache for heads of dim elements.
func (b *binder) cache(role string, heads, dim int) cache {
	o := b.operand(role)
	c := cache{data: o.Data, heads: heads, positions: b.int("positions"), ring: b.int("ring") != 0,
		table: b.i32("pages"), perSeq: b.SeqPages}
	switch format := cacheFormats[o.Format]; {
	case format == nil:
		b.fail("operand %s is %s, expected one of %v", role, o.Format, plan.CacheFormats())
	case o.Format == "q8_0" && dim%numfmt.BlockLen != 0:
		b.fail("operand %s is q8_0, which needs a multiple of %d elements in a head, found %d", role, numfmt.BlockLen, dim)
	default:
		c.cacheFormat = format(b.vectors(), dim)
	}
	return c
}

func f32Cache(_ *vectors, dim int) *cacheFormat {
	return plainCache(dim, func(to, from []float32) { copy(to, from) }, func(to, from []float32) { copy(to, from) })
}

func f16Cache(v *vectors, dim int) *cacheFormat {
	p := plainCache(dim, v.widen, v.narrow)
	p.half = true
	return p
}

func fp8Cache(v *vectors, dim int) *cacheFormat { return plainCache(dim, v.widenE4M3, narrowE4M3) }

// plainCache is a format whose parts are arrays of elements of type E.
func plainCache[E float32 | uint16 | uint8](dim int, load func(to []float32, from []E), store func(to []E, from []float32)) *cacheFormat {
	const page = plan.PageTokens
	var zero E
	size := int(unsafe.Sizeof(zero))
	row := make([]E, dim)
	return &cacheFormat{
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

// This does not compile unless the reference kernels and plans have the same page size.
var _ = [1]struct{}{}[plan.PageTokens-ref.PageTokens]
