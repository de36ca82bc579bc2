package quant

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pesti/conformance/testenv"
)

// pythonTypes returns the types that convert.py reads: all that can be dequantized,
// except types of wider numbers and integers, which TestDequantizeWide covers.
func pythonTypes() []Type {
	var types []Type
	for i := range infos {
		if infos[i].Dequantize != nil && !slices.Contains([]Type{I8, I16, I32, I64, F64}, Type(i)) {
			types = append(types, Type(i))
		}
	}
	return types
}

// exactTypes are the types that the package can write, and for which we write the same
// bytes. It cannot write the K-quants.
var exactTypes = []Type{F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0}

// TestAgainstPython compares both directions with the Python package. Random
// blocks, many of them with NaN, infinite and subnormal scales, must give the same
// float32 bits, and float32 values the same bytes.
func TestAgainstPython(t *testing.T) {
	dir := t.TempDir()
	blocks, floats := map[Type][]byte{}, map[Type][]float32{}
	for _, typ := range pythonTypes() {
		blocks[typ] = randomBlocks(&infos[typ], 4096)
		write(t, filepath.Join(dir, typ.String()+".blocks"), blocks[typ])
	}
	for _, typ := range exactTypes {
		floats[typ] = hardFloats(infos[typ].BlockLen == 1)
		raw := make([]byte, 4*len(floats[typ]))
		quantizeF32(raw, floats[typ])
		write(t, filepath.Join(dir, typ.String()+".floats"), raw)
	}
	if out, err := testenv.Python(t, "testdata/convert.py", dir).Output(); err != nil {
		t.Fatalf("convert.py: %v\n%s", err, out)
	}

	t.Run("sizes", func(t *testing.T) {
		var sizes map[string][3]int
		if err := json.Unmarshal(read(t, filepath.Join(dir, "sizes.json")), &sizes); err != nil {
			t.Fatal(err)
		}
		// The package counts four bytes for each of two f16 numbers of Q8_1,
		// which no file holds; the C structure has 36.
		sizes["Q8_1"] = [3]int{9, 32, 36}
		for i := range infos {
			in := &infos[i]
			if want := [3]int{i, in.BlockLen, in.BlockBytes}; !in.Removed && sizes[in.Name] != want {
				t.Errorf("%s: id, block length, bytes are %v, Python has %v", in.Name, want, sizes[in.Name])
			}
			delete(sizes, in.Name)
		}
		if len(sizes) > 0 {
			t.Errorf("types that only Python has: %v", sizes)
		}
	})
	t.Run("none missing", func(t *testing.T) {
		var theirs []string
		if err := json.Unmarshal(read(t, filepath.Join(dir, "reads.json")), &theirs); err != nil {
			t.Fatal(err)
		}
		if len(theirs) < 26 {
			t.Errorf("Python reads %v, expected the 26 types of gguf 0.19.0 at least", theirs)
		}
		for _, name := range theirs {
			if in, ok := ByName(name); !ok || !slices.Contains(pythonTypes(), in.Type) {
				t.Errorf("Python reads %s, for which the table has no conversion", name)
			}
		}
	})
	for _, typ := range pythonTypes() {
		t.Run("dequantize/"+typ.String(), func(t *testing.T) {
			in := &infos[typ]
			n := len(blocks[typ]) / in.BlockBytes * in.BlockLen
			got, want := make([]float32, n), make([]float32, n)
			in.Dequantize(got, blocks[typ])
			dequantizeF32(want, read(t, filepath.Join(dir, typ.String()+".values")))
			for i := range got {
				if !sameFloat(got[i], want[i]) {
					t.Fatalf("element %d is %v (%#x), Python has %v (%#x)", i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
				}
			}
		})
	}
	for _, typ := range exactTypes {
		t.Run("quantize/"+typ.String(), func(t *testing.T) {
			in := &infos[typ]
			src := floats[typ]
			got := make([]byte, RowBytes(typ, int64(len(src))))
			in.Quantize(got, src)
			want := read(t, filepath.Join(dir, typ.String()+".quantized"))
			if len(got) != len(want) {
				t.Fatalf("%d bytes, Python has %d", len(got), len(want))
			}
			for i := 0; i < len(src)/in.BlockLen; i++ {
				g, w := got[i*in.BlockBytes:][:in.BlockBytes], want[i*in.BlockBytes:][:in.BlockBytes]
				if bytes.Equal(g, w) {
					continue
				}
				x := src[i*in.BlockLen:][:in.BlockLen]
				if in.BlockLen == 1 && x[0] != x[0] && isNaN(in, g) && isNaN(in, w) {
					continue
				}
				t.Fatalf("block %d of %v is\n%x, Python has\n%x", i, x, g, w)
			}
		})
	}
}

// randomBlocks returns n blocks of random bits. Random float16 scales are mostly huge or
// tiny, so every second block gets scales of ordinary size, and the others get special
// ones. Scales in other formats have few bits, so random bits give all their values.
func randomBlocks(in *Info, n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(in.Type)))
	b := make([]byte, n*in.BlockBytes)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	special := []uint16{0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7c01}
	for i := range n {
		for _, s := range in.Scales {
			at := b[i*in.BlockBytes+s.At:][:s.Bytes]
			if i%2 == 1 {
				if s.Bytes == 2 {
					le.PutUint16(at, special[r.IntN(len(special))])
				}
				continue
			}
			ordinary(r, s, at)
		}
	}
	return b
}

// ordinary sets a scale to random bits of magnitude 2⁻⁹ to 2⁻².
func ordinary(r *rand.Rand, s Scale, at []byte) {
	for {
		if x := abs(s.Read(at)); x >= 0x1p-9 && x < 0x1p-2 {
			return
		}
		for i := range at {
			at[i] = byte(r.Uint32())
		}
	}
}

// hardFloats returns rows of 32 values: normal and uniform ones of many
// magnitudes, and values that are hard to round or divide correctly. Values that are not
// finite are included only for types that store each element by itself: in blocks, their
// result in the package depends on the hardware.
func hardFloats(plain bool) []float32 {
	r := rand.New(rand.NewPCG(2, 3))
	var all []float32
	row := func(f func(i int) float32) {
		for i := range 32 {
			all = append(all, f(i))
		}
	}
	for range 2000 {
		scale := math.Exp2(float64(r.IntN(40) - 25))
		row(func(int) float32 { return float32(r.NormFloat64() * scale) })
		row(func(int) float32 { return float32((r.Float64() - 0.3) * scale) })
		row(func(int) float32 { return float32(r.IntN(255)-127) / 127 })
		row(func(int) float32 { return float32(r.IntN(33) - 16) })
	}
	row(func(int) float32 { return 0 })
	row(func(int) float32 { return float32(math.Copysign(0, -1)) })
	row(func(int) float32 { return 1 })
	row(func(int) float32 { return -3.5 })
	row(func(i int) float32 { return float32(i % 2 * 2) })
	row(func(i int) float32 { return float32(1 - i%2*2) }) // equal magnitudes
	row(func(i int) float32 { return float32(i%2*2 - 1) })
	row(func(i int) float32 { return float32(i) - 15.5 }) // halves
	row(func(i int) float32 { return []float32{1e-30, 65504 * 8}[i/31] })
	row(func(i int) float32 { return []float32{0, -1e6}[i/31] })
	row(func(i int) float32 { return float32(i) * 0x1p-24 })
	row(func(i int) float32 { return float32(i-16) * 1e-36 })
	if plain {
		inf, nan := float32(math.Inf(1)), float32(math.NaN())
		row(func(i int) float32 {
			return []float32{inf, -inf, nan, math.MaxFloat32, -math.MaxFloat32, 65519.9, 65520, 0x1p-149}[i%8]
		})
		row(func(i int) float32 { return float32(math.Copysign(0, float64(i%3)-1)) })
		for range 1 << 15 {
			all = append(all, math.Float32frombits(r.Uint32()))
		}
	}
	return all
}

func isNaN(in *Info, block []byte) bool {
	var x [1]float32
	in.Dequantize(x[:], block)
	return x[0] != x[0]
}

func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
