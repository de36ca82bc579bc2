package ref

import "pesti/gguf/numfmt"

// PageTokens is the number of positions in a page of a cache.
const PageTokens = 16

// A KV is a view of one layer's cache of keys or values: rows of Width elements in pages of
// PageTokens positions.
type KV struct {
	F32       []float32 // exactly one of F32, F16, FP8 and Q8 is set
	F16       []uint16
	FP8       []uint8 // E4M3
	Q8        []byte  // blocks of numfmt.BlockLen elements; Width is a multiple of that
	Width     int
	Positions int     // of each sequence, a multiple of PageTokens
	Pages     []int32 // [S·P] page numbers; nil: page p of sequence s is s·Positions/PageTokens + p
	P         int     // pages of one sequence in Pages
	Ring      bool    // position p is stored at p mod Positions; Pages is ignored
}

// offset returns where the row of a position starts.
func (c *KV) offset(seq, pos int) int {
	if c.Ring {
		return (seq*c.Positions + pos%c.Positions) * c.Width
	}
	page := seq*(c.Positions/PageTokens) + pos/PageTokens
	if c.Pages != nil {
		page = int(c.Pages[seq*c.P+pos/PageTokens])
	}
	return (page*PageTokens + pos%PageTokens) * c.Width
}

// Load reads the row of a position into dst, of Width elements.
func (c *KV) Load(dst []float32, seq, pos int) {
	at := c.offset(seq, pos)
	switch {
	case c.F16 != nil:
		for i, h := range c.F16[at : at+c.Width] {
			dst[i] = numfmt.F16ToF32(h)
		}
	case c.FP8 != nil:
		for i, b := range c.FP8[at : at+c.Width] {
			dst[i] = numfmt.E4M3ToF32(b)
		}
	case c.Q8 != nil:
		for i := 0; i < c.Width; i += numfmt.BlockLen {
			numfmt.DequantizeQ8_0(dst[i:], c.Q8[(at+i)/numfmt.BlockLen*numfmt.Q8_0Bytes:])
		}
	default:
		copy(dst[:c.Width], c.F32[at:])
	}
}

// Store writes the row of a position, rounded to the cache's format.
func (c *KV) Store(seq, pos int, src []float32) {
	at := c.offset(seq, pos)
	switch {
	case c.F16 != nil:
		row := c.F16[at : at+c.Width]
		for i, x := range src[:c.Width] {
			row[i] = numfmt.F32ToF16(x)
		}
	case c.FP8 != nil:
		row := c.FP8[at : at+c.Width]
		for i, x := range src[:c.Width] {
			row[i] = numfmt.F32ToE4M3(x)
		}
	case c.Q8 != nil:
		for i := 0; i < c.Width; i += numfmt.BlockLen {
			numfmt.QuantizeQ8_0(c.Q8[(at+i)/numfmt.BlockLen*numfmt.Q8_0Bytes:], src[i:])
		}
	default:
		copy(c.F32[at:at+c.Width], src)
	}
}

// KVWrite stores row t of x at position pos[t] of sequence seq[t].
func KVWrite(c *KV, x []float32, pos, seq []int32) {
	for t := range pos {
		c.Store(int(seq[t]), int(pos[t]), x[t*c.Width:(t+1)*c.Width])
	}
}
