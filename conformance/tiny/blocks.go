package tiny

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"pesti/gguf/quant"
)

// encode returns the bytes of a tensor: its values quantized, or random blocks for a type that has
// no quantizer.
func encode(t Tensor) ([]byte, error) {
	info, ok := quant.Lookup(t.Type)
	switch {
	case !ok || info.Dequantize == nil:
		return nil, fmt.Errorf("type %s has no dequantizer", t.Type)
	case info.Quantize == nil:
		name := fnv.New64a()
		name.Write([]byte(t.Name))
		return Blocks(rand.New(rand.NewPCG(name.Sum64(), 0)), info, len(t.Data)/info.BlockLen, rms(t.Data)), nil
	}
	data := make([]byte, quant.RowBytes(t.Type, int64(len(t.Data))))
	info.Quantize(data, t.Data)
	return data, nil
}

// Blocks returns n blocks of random bits. Their scales are finite, and the root mean square of the
// values of each is within a factor of √2 of size. If size is 0, all bits are 0. The blocks are
// drawn from a pool of 64.
func Blocks(rng *rand.Rand, info *quant.Info, n int, size float64) []byte {
	if !(size > 0) {
		return make([]byte, n*info.BlockBytes)
	}
	const different = 64
	pool := make([]byte, 0, different*info.BlockBytes)
	block, values := make([]byte, (info.BlockBytes+7)/8*8), make([]float32, info.BlockLen)
	for len(pool) < cap(pool) {
		for i := 0; i < len(block); i += 8 {
			binary.LittleEndian.PutUint64(block[i:], rng.Uint64())
		}
		info.Dequantize(values, block)
		wild := func(s quant.Scale) bool { x := float64(s.Read(block[s.At:])); return math.IsNaN(x) || math.IsInf(x, 0) }
		// Few random blocks have the wanted size, but this works for every format.
		if r := rms(values); r >= size/math.Sqrt2 && r <= size*math.Sqrt2 && !slices.ContainsFunc(info.Scales, wild) {
			pool = append(pool, block[:info.BlockBytes]...)
		}
	}
	data := make([]byte, 0, n*info.BlockBytes)
	for range n {
		at := rng.IntN(different) * info.BlockBytes
		data = append(data, pool[at:at+info.BlockBytes]...)
	}
	return data
}

// rms is the root mean square, or NaN if a value is NaN.
func rms(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(len(x)))
}
