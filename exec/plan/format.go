package plan

import "fmt"

// A Format is an element type of a buffer. Elements come in blocks of Elems, each Bytes long.
// (Weights keep the types of the model file; package gguf/quant knows those.)
type Format struct {
	Name  string
	Elems int64
	Bytes int64
	Fast  bool // rounds activations, which only precision fast allows
}

// formats is the table of element formats.
//
// q8x2 is a row of K activations as two planes of int8, with scales and sums for the products: hi
// int8[K], lo int8[K], scale f32[K/32], sum i32[K/16], so that x ≈ scale·(hi + lo/128).
//
// q8 is the same with one plane: q int8[K], scale and sum, so that x ≈ scale·q.
//
// bf16 is a row of activations for products in tiles, in blocks of 32: the upper half of float32,
// rounded to nearest even, subnormal numbers to 0.
//
// f8_e4m3 is for caches: FP8 E4M3 numbers without scales (OCP 8-bit Floating Point Specification).
//
// q8_0 is for caches: x ≈ d·q with d f16 and q int8[32].
var formats = []Format{
	{Name: "f32", Elems: 1, Bytes: 4},
	{Name: "i32", Elems: 1, Bytes: 4},
	{Name: "f16", Elems: 1, Bytes: 2},
	{Name: "f8_e4m3", Elems: 1, Bytes: 1},
	{Name: "q8_0", Elems: 32, Bytes: 34},
	{Name: "q8x2", Elems: 32, Bytes: 76, Fast: true},
	{Name: "q8", Elems: 32, Bytes: 44, Fast: true},
	{Name: "bf16", Elems: 32, Bytes: 64, Fast: true},
}

// LookupFormat returns the format with a name.
func LookupFormat(name string) (Format, bool) {
	for _, f := range formats {
		if f.Name == name {
			return f, true
		}
	}
	return Format{}, false
}

// Size returns the bytes that elems elements take. Elements that do not fill a block are an
// error: a row may not end inside one.
func (f Format) Size(elems int64) (int64, error) {
	if elems < 0 || elems%f.Elems != 0 {
		return 0, fmt.Errorf("%d elements of %s, expected a multiple of %d", elems, f.Name, f.Elems)
	}
	n, ok := mul(elems/f.Elems, f.Bytes)
	if !ok {
		return 0, fmt.Errorf("%d elements of %s exceed %d bytes", elems, f.Name, maxInt)
	}
	return n, nil
}
