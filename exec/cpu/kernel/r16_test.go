package kernel

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/gguf/quant"
)

// TestLayouts sees that plans know the same layouts, of the same sizes.
func TestLayouts(t *testing.T) {
	if got, want := len(Layouts()), len(plan.Layouts()); got != want {
		t.Errorf("%d layouts, plans have %d", got, want)
	}
	for _, l := range Layouts() {
		p, ok := plan.LookupLayout(l.Name, strings.ToLower(l.Type.String()))
		if !ok || p.Rows != panelRows || p.Block != int64(l.Block) || p.Bytes != int64(l.Bytes) {
			t.Errorf("%s of %s: blocks of %d rows, %d elements, %d bytes; in plans %+v", l.Name, l.Type, panelRows, l.Block, l.Bytes, p)
		}
	}
	if _, ok := LookupLayout("r16", quant.IQ4_XS); ok {
		t.Error("a type without a layout has one")
	}
}

// TestPack packs random blocks, by parts as several workers do, and sees that every row comes
// back, that rows beyond the last are zero, and that nothing else is written.
func TestPack(t *testing.T) {
	for _, l := range Layouts() {
		info, _ := quant.Lookup(l.Type)
		for _, n := range []int{1, 15, 16, 17, 50} {
			for _, k := range []int{l.Block, 3 * l.Block} {
				file := make([]byte, n*k/info.BlockLen*info.BlockBytes)
				rng := rand.New(rand.NewPCG(uint64(n), uint64(k)))
				for i := range file {
					file[i] = byte(rng.Uint32())
				}
				m := newMemory(l.Size(n, k))
				panels := l.Panels(n)
				l.Pack(m.data(), file, n, k, panels/2, panels)
				if panels > 1 && bytes.Count(m.data()[:l.panel(k)], []byte{0xa5}) != l.panel(k) {
					t.Errorf("%s: a panel that was not asked for is written", l.Type)
				}
				l.Pack(m.data(), file, n, k, 0, panels/2)
				if !m.intact() {
					t.Errorf("%s: bytes around the panels were written", l.Type)
				}
				rowBytes := len(file) / n
				row := make([]byte, rowBytes)
				for r := range panels * panelRows {
					l.unpackRow(row, m.data()[r/panelRows*l.panel(k):][:l.panel(k)], r%panelRows)
					want := make([]byte, rowBytes)
					if r < n {
						want = file[r*rowBytes : (r+1)*rowBytes]
					}
					if !bytes.Equal(row, want) {
						t.Fatalf("%s: row %d of %d×%d is %x, expected %x", l.Type, r, n, k, row, want)
					}
				}
			}
		}
	}
}

// TestUnits holds panels against what the layout says: element 4t+j of a row is byte j of lane r
// of unit t. With scales of 1, random integers are the weights.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		kind              quant.Type
		bits, head, block int // bytes before the units, elements of a block
		zero              int
	}{
		{quant.Q4_0, 4, 32, 32, 8}, {quant.Q4_1, 4, 64, 32, 0}, {quant.Q5_0, 5, 32, 32, 16}, {quant.Q5_1, 5, 64, 32, 0},
		{quant.Q8_0, 8, 32, 32, 0}, {quant.Q4_K, 4, kHead, 256, 0}, {quant.Q5_K, 5, kHead, 256, 0}, {quant.Q6_K, 6, sixHead, 256, 32},
	} {
		info, _ := quant.Lookup(c.kind)
		l, _ := LookupLayout("r16", c.kind)
		file := make([]byte, 16*info.BlockBytes)
		rng := rand.New(rand.NewPCG(uint64(c.kind), 1))
		for i := range file {
			file[i] = byte(rng.Uint32())
		}
		one := func(block []byte, at int) { block[at], block[at+1] = 0x00, 0x3c }
		for r := range 16 {
			block := file[r*info.BlockBytes:][:info.BlockBytes]
			one(block, info.Scales[0].At)
			if len(info.Scales) > 1 { // no minimum
				block[info.Scales[1].At], block[info.Scales[1].At+1] = 0, 0
			}
			switch c.kind {
			case quant.Q4_K, quant.Q5_K: // scales of 1
				copy(block[4:], []byte{1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1})
			case quant.Q6_K:
				copy(block[192:], bytes.Repeat([]byte{1}, 16))
			}
		}
		want := make([]float32, 16*c.block)
		info.Dequantize(want, file)
		panel := make([]byte, l.Bytes)
		l.Pack(panel, file, 16, c.block, 0, 1)
		for r := range 16 {
			for i := range c.block {
				units := panel[c.head+i/32*8*c.bits*8:]
				unit, at := i%32/4, 4*r+i%4
				var got int
				if c.bits == 8 {
					got = int(int8(units[64*unit+at]))
				} else {
					got = int(units[unit%4*64+at] >> (unit / 4 * 4) & 15)
				}
				switch c.bits {
				case 5:
					got |= int(units[256+at]>>unit&1) << 4
				case 6:
					got |= int(units[256+unit/4*64+at]>>(unit%4*2)&3) << 4
				}
				if float32(got-c.zero) != want[r*c.block+i] {
					t.Fatalf("%s: element %d of row %d is %d, expected %v", c.kind, i, r, got-c.zero, want[r*c.block+i])
				}
			}
		}
	}
}

// TestPackedBits sees that products from a layout are those from the file, bit for bit: portable
// kernels compute the same, and integer kernels of every set do.
func TestPackedBits(t *testing.T) {
	for _, mm := range runnable() {
		if mm.Layout == "" || mm.ISA != "portable" && mm.Act == "f32" {
			continue
		}
		l, _ := LookupLayout(mm.Layout, mm.Type)
		for _, n := range []int{1, 16, 37, 260} {
			for _, k := range []int{l.Block, 3 * l.Block, 9 * l.Block} {
				rng := rand.New(rand.NewPCG(uint64(n), uint64(k)))
				const most = 21
				c := newCall("matmul_group", "T", "rows", 16, intParam("k", k), intParam("n0", n))
				c.isa, c.scratch = "portable", 44*k+18432
				c.putActivations(rng, mm.Act, most, k)
				c.putWeight(rng, "w0", strings.Replace(mm.Name, "."+mm.Layout, "", 1), mm.Type, n*k)
				c.put("out0", make([]float32, most*n))
				for _, m := range []int{1, 2, 3, 4, 5, 7, 8, 15, 16, 17, most} {
					c.run(t, 1, Run{T: m}, "out0")
					want := bytes.Clone(c.mem["out0"].data())
					packed := *c
					packed.isa = mm.ISA
					packed.mem, packed.ops = map[string]*memory{}, map[string]Operand{}
					for role := range c.mem {
						packed.mem[role], packed.ops[role] = c.mem[role], c.ops[role]
					}
					packed.pack("w0", mm, n, k)
					packed.run(t, 2, Run{T: m}, "out0")
					if !bytes.Equal(c.mem["out0"].data(), want) {
						t.Fatalf("%s %s: %d×%d times %d rows differs from the product as in the file", mm.Name, mm.ISA, n, k, m)
					}
				}
			}
		}
	}
}
