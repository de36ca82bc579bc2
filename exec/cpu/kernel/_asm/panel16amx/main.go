// Command panel16amx generates the AMX kernels for weights in layout panel16 (panel16.go) and activations in q8x2
// and q8. TDPBSSD multiplies up to 16 tokens by 16 rows of weights at a time. Its sums are exact, so results have the
// bits of the AVX-512 kernels. A unit of weights is a row of a tile.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/amx"
	"pesti/exec/cpu/kernel/_asm/format"
	"pesti/exec/cpu/kernel/_asm/units512"
)

func main() {
	ConstraintExpr("!purego")
	for _, f := range format.Formats {
		products(f, 2)
		products(f, 1)
	}
	Generate()
}

const (
	unit   = units512.Unit
	panels = 2
	span   = 8 * unit  // bytes of the units of 32 elements
	tile   = 16 * unit // bytes of a tile
)

// First tile registers: one for each plane of the tokens, one for each panel, and one for the products of each plane
// with each panel.
const (
	tokenTile   amx.Tile = 0
	weightTile  amx.Tile = 2
	productTile amx.Tile = 4
)

// products writes the kernel for two panels and up to 16 tokens in one or two planes.
func products(f format.Format, planes int) {
	name := "panel16amx" + f.Name
	if planes == 1 {
		name += "_q8"
	}
	TEXT(name, 0, "func(y *float32, yStep int, w *byte, wStep int, x *byte, xStep int, q *int8, rowStep, planeStep, tokens, blocks int, config *byte)")
	Pragma("noescape")
	Doc(name + " adds to 32 float32 at y, and each yStep bytes behind them, the products of blocks of two panels, wStep bytes apart, with tokens, whose parts are xStep and rowStep bytes apart. config has the shapes of tiles for so many tokens.")
	k := units512.New(f, true)

	// Units and products are on the stack, aligned to cache lines.
	buffer, unitStep, rowStep, plane := reg.RSI, reg.RAX, reg.RCX, [2]reg.GPPhysical{reg.RDI, reg.RDX}
	blocks, tokens, pending := AllocLocal(8), AllocLocal(8), AllocLocal(8) // tokens is in bytes of a tile's rows
	LEAQ(AllocLocal(panels*span+panels*planes*tile+unit), buffer)
	ADDQ(U8(unit-1), buffer)
	ANDQ(I8(-unit), buffer)
	units := func(panel, first int) int { return panel*span + first*unit }
	result := func(panel, plane int) int { return panels*span + (planes*panel+plane)*tile }

	config := GP64()
	Load(Param("config"), config)
	MOVQ(config, reg.RBX)
	amx.Emit(amx.LDTILECFG(amx.Mem{Base: reg.RBX}), reg.RBX)
	MOVQ(U32(unit), unitStep)
	Load(Param("rowStep"), rowStep)
	Load(Param("q"), plane[0])
	if planes == 2 {
		Load(Param("planeStep"), plane[1])
		ADDQ(plane[0], plane[1])
	}
	count := Load(Param("tokens"), GP64())
	SHLQ(U8(6), count)
	MOVQ(count, tokens)
	MOVQ(Load(Param("blocks"), count), blocks)
	x := Load(Param("x"), GP64())
	step := Load(Param("wStep"), GP64())
	w := units512.Panels{W: GP64(), At: []func(base reg.GPVirtual, disp int) Mem{
		func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Disp: disp} },
		func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Index: step, Scale: 1, Disp: disp} },
	}}
	Load(Param("w"), w.W)

	at := func(base, index reg.GPPhysical, disp int) amx.Mem {
		return amx.Mem{Base: base, Index: index, Disp: int32(disp)}
	}
	product := func(panel, i int) amx.Tile { return productTile + amx.Tile(planes*panel+i) }
	// multiply computes the products of a part of the units with all tokens.
	multiply := func(p units512.Part) {
		for i := range planes {
			amx.Emit(amx.TILELOADD(tokenTile+amx.Tile(i), at(plane[i], rowStep, 4*p.First)), plane[i], rowStep)
		}
		for panel := range panels {
			weights := weightTile + amx.Tile(panel)
			amx.Emit(amx.TILELOADD(weights, at(buffer, unitStep, units(panel, p.First))), buffer, unitStep)
			for i := range planes {
				amx.Emit(amx.TILEZERO(product(panel, i)))
				amx.Emit(amx.TDPBSSD(product(panel, i), tokenTile+amx.Tile(i), weights))
			}
		}
	}
	store := func() {
		for panel := range panels {
			for i := range planes {
				amx.Emit(amx.TILESTORED(at(buffer, unitStep, result(panel, i)), product(panel, i)), buffer, unitStep)
			}
		}
	}
	// add adds the stored products to y. Each operation rounds as in swar_products.go.
	add := func(label string, parts [panels]units512.Part) {
		y, at, from := Load(Param("y"), GP64()), GP64(), GP64()
		MOVQ(x, at)
		XORQ(from, from)
		Label(label)
		for panel, p := range parts {
			sum := ZMM()
			VMOVDQU64(Mem{Base: buffer, Index: from, Scale: 1, Disp: result(panel, 0)}, sum)
			if planes == 2 {
				VPSLLD(U8(7), sum, sum)
				VPADDD(Mem{Base: buffer, Index: from, Scale: 1, Disp: result(panel, 1)}, sum, sum)
			}
			k.AddScaled(sum, Mem{Base: y, Disp: unit * panel}, sum, p, Mem{Base: at})
			VMOVUPS(sum, Mem{Base: y, Disp: unit * panel})
		}
		units512.Advance("yStep", y)
		units512.Advance("xStep", at)
		ADDQ(U8(unit), from)
		CMPQ(from, tokens)
		JNE(LabelRef(label))
	}

	// The products of a part are added one part later, while the tiles multiply the next part.
	var last [panels]units512.Part
	for panel := range last {
		last[panel] = units512.Part{D: ZMM(), M: ZMM()}
	}
	MOVQ(U32(0), pending)
	Label("block")
	SUBQ(U8(1), blocks)
	JL(LabelRef("rest"))
	var parts [panels][]units512.Part
	k.Block(w, func(panel int, at Mem, load func() []units512.Part) {
		for t, u := range k.Units(at) {
			VMOVDQU64(u, Mem{Base: buffer, Disp: units(panel, t)})
		}
		parts[panel] = load()
		if panel+1 < panels {
			return
		}
		for i := range parts[0] {
			multiply(parts[0][i])
			if i == 0 {
				CMPQ(pending, U8(0))
				JEQ(LabelRef("none"))
			}
			add([]string{"token", "token2"}[i], last)
			if i == 0 {
				ADDQ(U8(format.Bytes), x)
				Label("none")
				MOVQ(U32(1), pending)
			}
			store()
			for panel := range last {
				VMOVAPS(parts[panel][i].D, last[panel].D)
				if k.Min {
					VMOVAPS(parts[panel][i].M, last[panel].M)
				}
			}
		}
	}, func() {
		for i := range planes {
			ADDQ(U8(32), plane[i])
		}
	})
	JMP(LabelRef("block"))

	Label("rest")
	CMPQ(pending, U8(0))
	JEQ(LabelRef("done"))
	add("last", last)
	Label("done")
	amx.Emit(amx.TILERELEASE())
	VZEROUPPER()
	RET()
}
