package kernel

import (
	"math"
	"slices"

	"pesti/gguf/numfmt"
	"pesti/gguf/quant"
)

// Products of bf16 numbers, for steps of many tokens: weights of any type are converted to bf16 once
// per step, which is cheap compared with the products of many tokens.
//
// A panel is converted to pairs: for each two elements of k, a 32-bit word for each of the 16 rows, with
// the even element in its low half. A vector of 16 words is a row of an AMX tile.
//
// Every kernel gives the bits of TDPBF16PS: for each 32 elements of k, the products of the even elements
// are added in order, and those of the odd elements; then the two sums are added to each other, and the
// total to the result. A product of two bf16 numbers is exact in float32. The only difference is that
// AMX flushes results below 2⁻¹²⁶ to zero.
const (
	tileK      = 32 // elements of k in a tile
	tilePanels = 4  // panels that are multiplied at a time
	tileWidth  = tilePanels * panelRows
	tilePart   = 1024 // elements of k that are converted to pairs at a time
	tilePairs  = tilePart / 2 * panelRows
)

// A pairPacker converts elements [from, to) of the n ≤ 16 rows of w, in the layout of the file or of a
// panel, to pairs. Missing rows are zero. from and to are multiples of 256, except that to may be the
// end of the rows.
type pairPacker func(dst []uint32, w []byte, n, from, to int, t *tiles)

// A multiplier adds products to y, which has tileWidth for each token. w is an even number of panels of
// k elements as pairs. The k elements of token i begin at x[i*xStep]. k is a multiple of tileK.
type multiplier func(y []float32, w []uint32, panels, k int, x []uint16, xStep, tokens int)

// tiles is the state of a step with bf16 activations.
type tiles struct {
	k        int
	x        []uint16  // all rows of the operand
	y        []float32 // tileWidth products of each row
	w        []uint32  // pairs of tilePanels panels
	part     []float32 // buffer of pairPackers: panelPart elements of a panel
	swar     *swarSpan // buffer of pairPackers
	multiply multiplier
}

// tiles binds operand x. It needs 256 bytes of scratch for each row, 128 KiB for pairs, 16 KiB for
// float32 and 768 bytes for a swarSpan.
func (b *binder) tiles(rest *[]byte) *tiles {
	t := &tiles{k: b.int("k"), x: view[uint16](b.operand("x").Data), multiply: portableMultiply}
	if t.k%tileK != 0 {
		b.fail("k=%d is not a multiple of %d", t.k, tileK)
	}
	t.w, t.part = scratch[uint32](b, rest, tilePanels*tilePairs), scratch[float32](b, rest, panelPart*panelRows)
	t.swar = scratchOne[swarSpan](b, rest)
	t.y = view[float32](*rest)
	if len(t.y) < tileWidth {
		b.fail("scratch of %d bytes is too small for a row of products", len(b.Scratch))
	}
	for _, m := range assemblyMultipliers {
		if slices.Contains(b.isas, m.isa) {
			t.multiply = m.multiply
		}
	}
	return t
}

// A multiplierVariant is a multiplier for an instruction set.
type multiplierVariant struct {
	isa      string
	multiply multiplier
}

// A rowSpan is at most tileWidth rows of a weight, from row lo on.
type rowSpan struct {
	*boundWeight
	lo, n int
}

// products sets t.y to the products of m tokens with the rows of all spans. The products of each span
// begin at a multiple of 16.
func (t *tiles) products(m int, spans ...rowSpan) {
	y := t.y[:m*tileWidth]
	clear(y)
	for from := 0; from < t.k; from += tilePart {
		to := min(from+tilePart, t.k)
		size := (to - from) / 2 * panelRows
		panels := 0
		for _, s := range spans {
			for lo := s.lo; lo < s.lo+s.n; lo += panelRows {
				n := min(panelRows, s.lo+s.n-lo)
				s.pairs(t.w[panels*size:][:size], s.rows(lo, n), n, from, to, t)
				panels++
			}
		}
		if panels%2 != 0 {
			clear(t.w[panels*size:][:size])
			panels++
		}
		t.multiply(y, t.w[:panels*size], panels, to-from, t.x[from:], t.k, m)
	}
}

// bindTileGroup is bindMatmulGroup for bf16 activations.
func bindTileGroup(b *binder) Func {
	rest := b.Scratch
	t, rows := b.tiles(&rest), b.rows()
	members := b.members(t.k)
	if b.err != nil {
		return nil
	}
	return func(r *Run) {
		m := rows(r)
		for i := range members {
			g := &members[i]
			for lo := g.lo; lo < g.hi; lo += tileWidth {
				n := min(tileWidth, g.hi-lo)
				t.products(m, rowSpan{&g.boundWeight, lo, n})
				for j := range m {
					g.finish(t.y[j*tileWidth:][:n], j*g.n+lo, lo)
				}
			}
		}
	}
}

// bindTileGated is bindGated for bf16 activations.
func bindTileGated(b *binder) Func {
	const half = tileWidth / 2
	rest := b.Scratch
	n, split, rows := b.int("n"), b.split(), b.rows()
	put := b.gatedStore(&rest, half, n)
	t := b.tiles(&rest)
	gate, up := b.boundWeight("w0", "bf16", t.k), b.boundWeight("w1", "bf16", t.k)
	return func(r *Run) {
		m := rows(r)
		first, last := split.of(n)
		for lo := first; lo < last; lo += half {
			n1 := min(half, last-lo)
			t.products(m, rowSpan{&gate, lo, n1}, rowSpan{&up, lo, n1})
			ups := (n1 + panelRows - 1) / panelRows * panelRows // start of the products of up
			for j := range m {
				p := t.y[j*tileWidth:][:tileWidth]
				put(j, lo, p[:n1], p[ups:][:n1])
			}
		}
	}
}

// filePairs returns the pairPacker for the layout of the file.
func filePairs(info *quant.Info) pairPacker {
	return func(dst []uint32, w []byte, n, from, to int, t *tiles) {
		rowBytes := t.k / info.BlockLen * info.BlockBytes
		clear(dst)
		for i := range n {
			row := t.part[:to-from]
			info.Dequantize(row, w[i*rowBytes:][from/info.BlockLen*info.BlockBytes:to/info.BlockLen*info.BlockBytes])
			setPairs(dst, row, i)
		}
	}
}

// pairs is the pairPacker for panels.
func (l *Layout) pairs(dst []uint32, w []byte, n, from, to int, t *tiles) {
	clear(dst)
	for i := range n {
		row := t.part[:to-from]
		l.row(row, w[from/l.Block*l.Bytes:to/l.Block*l.Bytes], i, t.swar)
		setPairs(dst, row, i)
	}
}

// setPairs stores row i in dst, where the elements of that row must be zero.
func setPairs(dst []uint32, row []float32, i int) {
	for e, v := range row {
		dst[e/2*panelRows+i] |= uint32(numfmt.F32ToBF16FTZ(v)) << (e % 2 * 16)
	}
}

func portableMultiply(y []float32, w []uint32, panels, k int, x []uint16, xStep, tokens int) {
	for i := range tokens {
		row := x[i*xStep:][:k]
		for p := range panels {
			y := (*[panelRows]float32)(y[i*tileWidth+p*panelRows:])
			for at := 0; at < k; at += tileK {
				var even, odd [panelRows]float32
				for e := at; e < at+tileK; e += 2 {
					a, b := numfmt.BF16ToF32(row[e]), numfmt.BF16ToF32(row[e+1])
					for j, pair := range (*[panelRows]uint32)(w[(p*k+e)/2*panelRows:]) {
						even[j] += float32(a * math.Float32frombits(pair<<16))
						odd[j] += float32(b * math.Float32frombits(pair&0xffff0000))
					}
				}
				for j := range y {
					y[j] += even[j] + odd[j]
				}
			}
		}
	}
}
