package kernel

import (
	"fmt"
	"slices"
	"strings"

	"pesti/gguf/quant"
)

// A Matmul is a kernel for the weights of a matmul step, for one weight type in one layout and one
// format of activations. It computes tiles of products. The step's kernel then applies bias, residual
// or gate to each tile.
type Matmul struct {
	Name   string // "gemv.q5_0.q8x2", "gemm.q5_0.panel16.q8x2"
	ISA    string
	Type   quant.Type
	Layout string // of the weights: "" for that of the file, or a name in Layouts
	Act    string // format of the activations: "f32", "q8x2", "q8", "bf16"

	// tile sets y[m*x.width+i], for i < n ≤ x.width, to the product of weight row i of w with the
	// m-th of the loaded activation rows. In a layout of panels w consists of whole panels.
	tile func(y []float32, w []byte, n int, x *activation)

	pairs pairPacker // used instead of tile for bf16 activations, see tiles.go

	words bool // the tile function reads q8x2 or q8 activations as words

	orders []ReadOrder // in which one token can read weights, the default first; nil if there is no choice
}

// A tileFunc is the function of a Matmul that computes a tile.
type tileFunc = func(y []float32, w []byte, n int, x *activation)

// Matmuls returns the matmul kernels.
func Matmuls() []Matmul { return slices.Clone(matmuls) }

// matmuls has, for each weight type: kernels for float32 activations if quant can dequantize the type
// (f8_e4m3 too; its row scales are applied by the step), and for q8x2 and q8 activations if the type
// has an integer kernel. A type with a layout has the same kernels again for that layout, and kernels
// for bf16 activations. gemv kernels are for steps of few tokens, gemm kernels for steps of many; in
// portable Go both are the same function.
var matmuls = slices.Concat(portableMatmuls(), assemblyMatmuls, assemblyPairs)

func portableMatmuls() []Matmul {
	var all []Matmul
	for t := quant.Type(0); ; t++ {
		info, ok := quant.Lookup(t)
		if !ok {
			break
		}
		if info.Dequantize != nil {
			all = append(all, gemvAndGemm("portable", t, "", "f32", dequantTile(fileRow(info)))...)
		}
	}
	f8, _ := quant.ByName(quant.F8E4M3.String())
	all = append(all, gemvAndGemm("portable", f8.Type, "", "f32", dequantTile(fileRow(f8)))...)
	for i := range swarTypes {
		t := &swarTypes[i]
		all = append(all, withWords(gemvAndGemm("portable", t.typ, "", "q8x2", swarTile(t, t.fileRows())))...)
		all = append(all, withWords(gemvAndGemm("portable", t.typ, "", "q8", swarTile(t, t.fileRows())))...)
	}
	for i := range layouts {
		l := &layouts[i]
		all = append(all, gemvAndGemm("portable", l.Type, l.Name, "f32", dequantTile(l.row))...)
		if t := swarTypeOf(l.Type); t != nil {
			all = append(all, withWords(gemvAndGemm("portable", l.Type, l.Name, "q8x2", swarTile(t, l.rows)))...)
			all = append(all, withWords(gemvAndGemm("portable", l.Type, l.Name, "q8", swarTile(t, l.rows)))...)
		}
		if l.Type == quant.F8E4M3 { // the bf16 kernels do not support row scales
			continue
		}
		all = append(all, gemvAndGemmPairs("portable", l.Type, "", filePairs(l.info()))...)
		all = append(all, gemvAndGemmPairs("portable", l.Type, l.Name, l.pairs)...)
	}
	return all
}

// gemvAndGemm returns the two rows of a tile kernel that is used for few tokens and for many.
func gemvAndGemm(isa string, t quant.Type, layout, act string, f func([]float32, []byte, int, *activation)) []Matmul {
	name := "." + strings.ToLower(t.String()) + "."
	if layout != "" {
		name += layout + "."
	}
	row := Matmul{Name: "gemv" + name + act, ISA: isa, Type: t, Layout: layout, Act: act, tile: f}
	rows := []Matmul{row, row}
	rows[1].Name = "gemm" + name + act
	return rows
}

// withWords marks matmul kernels that read words.
func withWords(rows []Matmul) []Matmul {
	for i := range rows {
		rows[i].words = true
	}
	return rows
}

// gemvAndGemmPairs is gemvAndGemm for bf16 activations.
func gemvAndGemmPairs(isa string, t quant.Type, layout string, f pairPacker) []Matmul {
	rows := gemvAndGemm(isa, t, layout, "bf16", nil)
	for i := range rows {
		rows[i].pairs = f
	}
	return rows
}

// A tile holds products of weight rows (the fast index) and tokens: 32 rows and 16 tokens, or more
// rows if there are fewer tokens, or more tokens if kernels need no copies of them (plainTokens). Workers share rows
// in units of 16 or 32; panels have 16.
const (
	tileRows     = 32
	tileTokens   = 16
	tileProducts = tileRows * tileTokens // of up to tileTokens tokens
	plainTokens  = 64
)

// An activation is a block of activation rows, prepared for a tile kernel.
type activation struct {
	k     int
	first int // first row of this block
	limit int // rows in a block: tileTokens, or plainTokens if kernels read planes and no words
	m     int // rows in this block
	width int // weight rows in a tile, a multiple of tileRows

	x    []float32 // f32: all rows of the operand
	rows []float32 // f32: the rows of this block
	w    []float32 // f32: buffer for 4 dequantized weight rows

	panel *[panelPart * panelRows]float32 // f32: part of a panel, dequantized

	planes planar    // q8x2, q8: all rows of the operand
	scales []qscale  // q8x2, q8: of the rows of this block
	word   wordsFunc // q8x2, q8: converts a row to words
	words  []int16   // q8x2, q8: the rows of this block, if kernels need words

	swar *swarSpan // two unpacked weight rows

	choices *Choices
}

// panelPart is the number of elements of k that are dequantized at a time.
const panelPart = 256

// activation binds operand x. It needs 768 bytes of scratch for a swarSpan. In addition, f32 activations
// need 16 bytes for each element of a row plus 16 KiB; q8x2 or q8 activations need 40 bytes for each element.
func (b *binder) activation(rest *[]byte) *activation {
	a := &activation{k: b.int("k"), limit: tileTokens, swar: scratchOne[swarSpan](b, rest), choices: b.Choices}
	if a.choices == nil {
		a.choices = new(Choices)
	}
	switch b.operand("x").Format {
	case "f32":
		a.panel = scratchOne[[panelPart * panelRows]float32](b, rest)
		a.x, a.w = b.f32("x"), scratch[float32](b, rest, 4*a.k)
	case "q8x2", "q8":
		a.planes, a.word = b.planar("x"), b.wordsFunc()
		if !b.needsWords() {
			a.limit = plainTokens
		} else {
			a.words = scratch[int16](b, rest, tileTokens*a.k)
		}
		a.scales = scratch[qscale](b, rest, a.limit*(a.k/32))
	default:
		b.fail("operand x is %s, expected f32, q8x2, q8 or bf16", b.operand("x").Format)
	}
	return a
}

// tile returns memory for the products of a tile.
func (a *activation) tile(b *binder, rest *[]byte) []float32 {
	return scratch[float32](b, rest, tileRows*a.limit)
}

// needsWords reports whether one of the step's matmul kernels reads words.
func (b *binder) needsWords() bool {
	for _, o := range b.Operands {
		if mm := lookupMatmul(o.Kernel, b.isas); mm != nil && mm.words {
			return true
		}
	}
	return false
}

// load prepares the rows from m0 to end, at most a.limit of them.
func (a *activation) load(m0, end int) {
	a.first, a.m = m0, min(a.limit, end-m0)
	a.width = max(tileTokens/a.m, 1) * tileRows
	if a.x != nil {
		a.rows = a.x[m0*a.k : (m0+a.m)*a.k]
		return
	}
	for m := range a.m {
		a.planes.scales(a.scales[m*(a.k/32):][:a.k/32], m0+m)
		if a.words != nil {
			a.planes.words(a.word, a.words[m*a.k:][:a.k], m0+m)
		}
	}
}

// A boundWeight is a weight matrix with its matmul kernel.
type boundWeight struct {
	data     []byte
	scales   []float32 // of rows, or nil
	rowBytes int
	unit     int // rows that are stored together: 1, or panelRows
	tile     func(y []float32, w []byte, n int, x *activation)
	pairs    pairPacker
}

// lookupMatmul returns the best variant of a matmul kernel whose instruction set is in isas, or nil.
func lookupMatmul(name string, isas []string) (best *Matmul) {
	for i := range matmuls {
		if m := &matmuls[i]; m.Name == name && slices.Contains(isas, m.ISA) {
			best = m // later rows are better
		}
	}
	return best
}

// boundWeight binds the weight of a role to the matmul kernel that the plan names for it.
func (b *binder) boundWeight(role, act string, k int) boundWeight {
	w := b.weight(role)
	name, layout := b.operand(role).Kernel, b.operand(role).Layout
	mm := lookupMatmul(name, b.isas)
	block := w.BlockLen
	l, packed := LookupLayout(layout, w.Type)
	if packed {
		block = l.Block
	}
	switch {
	case mm == nil:
		b.fail("weight %s: there is no matmul kernel %q for %v", role, name, b.isas)
		return boundWeight{}
	case mm.Type != w.Type || mm.Act != act:
		b.fail("weight %s is %s with %s activations, but its kernel is %q", role, w.Name, act, name)
	case mm.Layout != layout:
		b.fail("weight %s is in layout %q, but its kernel is %q", role, layout, name)
	case k%block != 0:
		b.fail("k=%d is not a multiple of the %d elements in a block of %s", k, block, w.Name)
	case packed && b.Step.Split.By != "one" && b.Step.Split.Unit%panelRows != 0:
		b.fail("rows are split by %d, but weight %s is in panels of %d", b.Step.Split.Unit, role, panelRows)
	}
	if packed {
		return boundWeight{w.data, w.scales, l.panel(k) / panelRows, panelRows, mm.tile, mm.pairs}
	}
	return boundWeight{w.data, w.scales, k / w.BlockLen * w.BlockBytes, 1, mm.tile, mm.pairs}
}

// rows returns n rows from row lo on. In panels, lo is a multiple of panelRows.
func (f *boundWeight) rows(lo, n int) []byte {
	hi := (lo + n + f.unit - 1) / f.unit * f.unit
	return f.data[lo*f.rowBytes : hi*f.rowBytes]
}

// rowsOf computes a tile of n rows from row lo on.
func (f *boundWeight) rowsOf(y []float32, lo, n int, x *activation) {
	f.tile(y, f.rows(lo, n), n, x)
	if f.scales == nil {
		return
	}
	for m := range x.m {
		for i, s := range f.scales[lo : lo+n] {
			y[m*x.width+i] *= s
		}
	}
}

// A member is one of the products of a matmul group, with its output and this worker's share of rows.
type member struct {
	boundWeight
	n      int
	bias   []float32
	res    []float32
	out    []float32
	lo, hi int
}

// members binds the products of a group, whose rows have k elements, with the worker's shares.
func (b *binder) members(k int) []member {
	var members []member
	for i := range 3 {
		id := fmt.Sprint(i)
		if _, ok := b.Operands["w"+id]; !ok {
			break
		}
		g := member{boundWeight: b.boundWeight("w"+id, b.operand("x").Format, k), n: b.int("n" + id),
			bias: b.optionalF32("bias" + id), out: b.f32("out" + id)}
		if i == 0 {
			g.res = b.optionalF32("res")
		}
		members = append(members, g)
	}
	if len(members) == 0 {
		b.fail("operand w0 is missing")
	}
	if b.err == nil {
		shareRows(members, b.split())
	}
	return members
}

// bindMatmulGroup computes up to three products of the same activations. The workers share the
// concatenated rows of all of them.
func bindMatmulGroup(b *binder) Func {
	if b.operand("x").Format == "bf16" {
		return bindTileGroup(b)
	}
	rest := b.Scratch
	x, rows := b.activation(&rest), b.rows()
	y := x.tile(b, &rest)
	members := b.members(x.k)
	if b.err != nil {
		return nil
	}
	return func(r *Run) {
		end := rows(r)
		for m0 := 0; m0 < end; m0 += x.m {
			x.load(m0, end)
			for i := range members {
				g := &members[i]
				for lo := g.lo; lo < g.hi; lo += x.width {
					n := min(x.width, g.hi-lo)
					g.rowsOf(y, lo, n, x)
					for m := range x.m {
						g.finish(y[m*x.width:][:n], (m0+m)*g.n+lo, lo)
					}
				}
			}
		}
	}
}

// finish adds bias and residual to products whose first weight row is row, and stores them at out[at:].
func (g *member) finish(products []float32, at, row int) {
	out := g.out[at : at+len(products)]
	switch {
	case g.bias == nil && g.res == nil:
		copy(out, products)
	case g.res == nil:
		bias := g.bias[row : row+len(products)]
		for i, p := range products {
			out[i] = p + bias[i]
		}
	case g.bias == nil:
		res := g.res[at : at+len(products)]
		for i, p := range products {
			out[i] = p + res[i]
		}
	default:
		bias, res := g.bias[row:row+len(products)], g.res[at:at+len(products)]
		for i, p := range products {
			out[i] = p + bias[i] + res[i]
		}
	}
}

// shareRows sets each member's share of rows, from plan.Split.ShareGroup.
func shareRows(members []member, s split) {
	rows, sizes := make([]int64, len(members)), make([]int64, len(members))
	for i := range members {
		rows[i], sizes[i] = int64(members[i].n), int64(members[i].rowBytes)
	}
	for i, r := range s.ShareGroup(rows, sizes, int64(s.worker), int64(s.workers)) {
		members[i].lo, members[i].hi = int(r.Lo), int(r.Hi)
	}
}

// bindGated is y = act(gate · x) ⊙ (up · x). Operand w0 is gate and w1 is up.
func bindGated(b *binder) Func {
	if b.operand("x").Format == "bf16" {
		return bindTileGated(b)
	}
	rest := b.Scratch
	x, n, split, rows := b.activation(&rest), b.int("n"), b.split(), b.rows()
	g, u := x.tile(b, &rest), x.tile(b, &rest)
	gate, up := b.boundWeight("w0", b.operand("x").Format, x.k), b.boundWeight("w1", b.operand("x").Format, x.k)
	put := b.gatedStore(&rest, tileProducts, n)
	return func(r *Run) {
		end := rows(r)
		first, last := split.of(n)
		for m0 := 0; m0 < end; m0 += x.m {
			x.load(m0, end)
			for lo := first; lo < last; lo += x.width {
				n1 := min(x.width, last-lo)
				gate.rowsOf(g, lo, n1, x)
				up.rowsOf(u, lo, n1, x)
				for m := range x.m {
					put(m0+m, lo, g[m*x.width:][:n1], u[m*x.width:][:n1])
				}
			}
		}
	}
}
