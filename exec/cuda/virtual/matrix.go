package virtual

import (
	"encoding/binary"
	"slices"
	"strings"

	"pesti/exec/cuda/virtual/ptx"
)

// A fragment maps element e of lane l to its row and column in the matrix. See PTX ISA, "Matrix Fragments
// for mma".
type fragment func(lane, e int) (row, column int)

// A shape is the shape of an mma: d (m×n) = a (m×k) · b (k×n) + c.
type shape struct {
	m, n, k int
	a, b, d fragment
}

// Fragments of operands with per elements in a 32-bit register. A lane's group, lane/4, is a row of a and
// d, and a column of b.

// tallA is a with 16 rows: registers alternate between row and row+8, then advance by 4·per columns.
func tallA(per int) fragment {
	return func(lane, e int) (int, int) {
		register, at := e/per, e%per
		return lane/4 + 8*(register&1), lane%4*per + at + 4*per*(register>>1)
	}
}

// shortA is a with 8 rows.
func shortA(per int) fragment {
	return func(lane, e int) (int, int) { return lane / 4, lane%4*per + e%per + 4*per*(e/per) }
}

// columnB is b, which is shortA transposed.
func columnB(per int) fragment {
	a := shortA(per)
	return func(lane, e int) (int, int) { row, column := a(lane, e); return column, row }
}

// resultD is c and d: two adjacent elements, and the two elements 8 rows below.
func resultD(lane, e int) (int, int) { return lane/4 + 8*(e>>1), lane%4*2 + e&1 }

var shapes = map[string]shape{
	"m8n8k16":  {8, 8, 16, shortA(4), columnB(4), resultD},
	"m16n8k16": {16, 8, 16, nil, nil, resultD},
	"m16n8k8":  {16, 8, 8, nil, nil, resultD},
	"m16n8k32": {16, 8, 32, tallA(4), columnB(4), resultD},
}

// An element of a matrix operand.
type elementType struct {
	bits    int
	value   func(uint32) float64 // exact
	integer func(uint32) int64   // of the low bits; nil for floats
}

var elementTypes = map[string]elementType{
	"s8":   {bits: 8, integer: func(v uint32) int64 { return int64(int8(v)) }},
	"u8":   {bits: 8, integer: func(v uint32) int64 { return int64(uint8(v)) }},
	"f16":  {bits: 16, value: func(v uint32) float64 { return float64(f32(halfToF32(v))) }},
	"bf16": {bits: 16, value: func(v uint32) float64 { return float64(f32(brainToF32(v))) }},
	"e4m3": {bits: 8, value: fp8e4m3.decode},
	"e5m2": {bits: 8, value: fp8e5m2.decode},
}

// mma is "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 d, a, b, c". Integer arithmetic is exact. Float
// products are added in float64 in order of k and rounded once. GPUs may round more often, which the PTX
// manual leaves open.
func (c *compiler) mma(in *ptx.Instr) (func(w *warp), error) {
	s := slices.Clone(in.Suffix)
	saturate := slices.Contains(s, "satfinite")
	s = slices.DeleteFunc(s, func(p string) bool { return p == "satfinite" || strings.HasPrefix(p, "kind::") })
	if len(s) != 9 || strings.Join(s[:2], ".") != "sync.aligned" || s[3] != "row" || s[4] != "col" {
		return nil, unknown(in)
	}
	sh, ok := shapes[s[2]]
	ta, okA := elementTypes[s[6]]
	tb, okB := elementTypes[s[7]]
	if !ok || !okA || !okB || ta.bits != tb.bits || (ta.integer == nil) != (tb.integer == nil) || s[5] != s[8] {
		return nil, unknown(in)
	}
	per := 32 / ta.bits
	if sh.m == 16 {
		sh.a, sh.b = tallA(per), columnB(per)
	}
	integers := ta.integer != nil
	perA, perB := sh.m*sh.k/32/per, sh.n*sh.k/32/per
	if perA == 0 || perB == 0 || sh.m == 8 && !integers || integers != (s[5] == "s32") || !integers && s[5] != "f32" {
		return nil, unknown(in)
	}
	r := reader{c: c, in: in}
	r.count(4)
	if r.err != nil {
		return nil, r.err
	}
	d := r.vector(0, sh.m*sh.n/32)
	a, b := r.vector(1, perA), r.vector(2, perB)
	e := r.vector(3, sh.m*sh.n/32)
	if r.err != nil {
		return nil, r.err
	}
	m := &matrices{shape: sh, per: per, d: d, a: a, b: b, c: e, saturate: saturate, ta: ta, tb: tb, opcode: in.Opcode()}
	if ops := int64(2 * sh.m * sh.n * sh.k); integers {
		c.work.tensorInts += ops
		return m.integers, nil
	} else {
		c.work.tensorFloats += ops
	}
	return m.floats, nil
}

// vector reads the registers of a matrix operand.
func (r *reader) vector(i, n int) []int {
	o := r.operand(i)
	parts := []ptx.Operand{*o}
	if o.Kind == ptx.Vector {
		parts = o.Parts
	}
	if len(parts) != n {
		r.keep(unknown(r.in))
		return nil
	}
	slots := make([]int, n)
	for j := range parts {
		var err error
		if i == 0 {
			slots[j], err = r.c.destination(r.in, &parts[j], ptx.Word)
		} else {
			slots[j], err = r.c.word(r.in, &parts[j])
		}
		r.keep(err)
	}
	return slots
}

// matrices has the operands of one mma.
type matrices struct {
	shape
	opcode     string
	per        int // elements in a register
	d, a, b, c []int
	ta, tb     elementType
	saturate   bool
}

// whole32 checks that all lanes of the warp are active.
func (w *warp) whole32(opcode string) bool {
	if w.mask != 0xffffffff {
		w.fail(first(w.mask), "%s: lane %d of the warp is not active", opcode, first(^w.mask))
		return false
	}
	return true
}

// gather calls put with each element of an operand.
func (m *matrices) gather(w *warp, slots []int, where fragment, put func(row, column int, v uint32)) {
	bitsEach := 32 / m.per
	for lane := range 32 {
		for e := range len(slots) * m.per {
			row, column := where(lane, e)
			v := w.words[slots[e/m.per]][lane] >> (e % m.per * bitsEach) & (1<<bitsEach - 1)
			put(row, column, v)
		}
	}
}

// integers multiplies a row with two columns at a time, whose elements are in the low and the high half of
// a 64-bit word.
func (m *matrices) integers(w *warp) {
	if !w.whole32(m.opcode) {
		return
	}
	var a [16][32]int64
	var b [32][4]int64
	for r, slot := range m.a {
		for lane, v := range &w.words[slot] {
			row, column := m.shape.a(lane, 4*r)
			to := a[row][column : column+4]
			for i := range to {
				to[i] = m.ta.integer(v >> (8 * i))
			}
		}
	}
	for r, slot := range m.b {
		for lane, v := range &w.words[slot] {
			row, column := m.shape.b(lane, 4*r)
			for i := range 4 {
				b[row+i][column/2] += m.tb.integer(v>>(8*i)) << (column % 2 * 32)
			}
		}
	}
	var sums [16][4]int64
	for row := range m.m {
		var s0, s1, s2, s3 int64
		x := &a[row]
		for k, y := range b[:m.k] {
			s0 += x[k] * y[0]
			s1 += x[k] * y[1]
			s2 += x[k] * y[2]
			s3 += x[k] * y[3]
		}
		sums[row] = [4]int64{s0, s1, s2, s3}
	}
	var out [4]lanes
	for e := range m.d {
		for lane := range 32 {
			row, column := m.shape.d(lane, e)
			both := sums[row][column/2]
			sum := int64(int32(both))
			if column%2 != 0 {
				sum = (both - sum) >> 32
			}
			sum += int64(int32(w.words[m.c[e]][lane]))
			if m.saturate {
				sum = max(min(sum, 1<<31-1), -1<<31)
			}
			out[e&3][lane] = uint32(sum)
		}
	}
	for e, slot := range m.d {
		w.words[slot] = out[e&3]
	}
}

func (m *matrices) floats(w *warp) {
	if !w.whole32(m.opcode) {
		return
	}
	var a, b [16][32]float64
	m.gather(w, m.a, m.shape.a, func(row, column int, v uint32) { a[row][column] = m.ta.value(v) })
	m.gather(w, m.b, m.shape.b, func(row, column int, v uint32) { b[column][row] = m.tb.value(v) })
	var out [4]lanes
	for e := range m.d {
		for lane := range 32 {
			row, column := m.shape.d(lane, e)
			sum := float64(f32(w.words[m.c[e]][lane]))
			x, y := &a[row], &b[column]
			for k := range m.k {
				sum += float64(x[k] * y[k])
			}
			out[e&3][lane] = b32(float32(sum))
		}
	}
	for e, slot := range m.d {
		w.words[slot] = out[e&3]
	}
}

// ldmatrix loads 1, 2 or 4 matrices of 8×8 elements of 16 bits: lanes 8·i to 8·i+7 hold the addresses
// of the rows of matrix i; a lane gets two elements of row lane/4, or of column lane/4 with .trans.
func (c *compiler) ldmatrix(in *ptx.Instr) (func(w *warp), error) {
	name := without(in, "trans", "shared::cta", "shared")
	count := map[string]int{"x1": 1, "x2": 2, "x4": 4}[strings.TrimSuffix(strings.TrimPrefix(name, "ldmatrix.sync.aligned.m8n8."), ".b16")]
	if count == 0 || !in.Has("shared") && !in.Has("shared::cta") {
		return nil, unknown(in)
	}
	r := reader{c: c, in: in}
	r.count(2)
	if r.err != nil {
		return nil, r.err
	}
	d := r.vector(0, count)
	if r.err != nil {
		return nil, r.err
	}
	row := access{opcode: in.Opcode(), space: sharedSpace, total: 16}
	if err := c.to(in, &row, &in.Args[1]); err != nil {
		return nil, err
	}
	trans := in.Has("trans")
	return func(w *warp) {
		if !w.whole32(row.opcode) {
			return
		}
		at := w.addresses(&row)
		counts := w.group.traffic(sharedSpace)
		counts.Requests++
		counts.Read += int64(count) * 128
		counts.Cut(passes(at, uint32(span(0, uint64(8*count))), 32, row.total))
		for i, slot := range d {
			var matrix [8][]byte
			for j := range matrix {
				if matrix[j] = w.bytes(&row, sharedSpace, 8*i+j, at[8*i+j]); matrix[j] == nil {
					return
				}
			}
			to := &w.words[slot]
			for lane := range to {
				x, y := lane/4, lane%4*2
				if trans {
					to[lane] = load16(matrix[y][2*x:]) | load16(matrix[y+1][2*x:])<<16
					continue
				}
				to[lane] = binary.LittleEndian.Uint32(matrix[x][2*y:])
			}
		}
	}, nil
}
