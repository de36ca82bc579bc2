// Package quant describes how tensor elements are stored. Its table has a row for
// each GGML tensor type: id, name, block size, and reference conversions to and
// from float32. Everything else is compared with these conversions: dequantized
// values are bit for bit those of the Python package gguf 0.19.0.
//
// Block layouts are those of https://github.com/ggml-org/ggml (ggml-common.h);
// the ids are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
//
// The package imports gguf/numfmt and nothing else of this module.
//
// # How to add a tensor type
//
//  1. The constant with its id, below.
//  2. A file that describes the block layout, with dequantizeX: a plain loop over
//     blocks with the arithmetic of the reference, rounded to float32 at each
//     step, as in float32(d*q) + m, so that the compiler fuses no operations.
//  3. A row in the table, at the position of its id. If the block has scales in an
//     encoding that scale.go does not read, add a function there.
//
// Then the type can be inspected, checked, dequantized, embedded and multiplied in
// every precision, by the matmul kernel that dequantizes rows, gemv.x.f32. If the
// Python package reads the type, TestAgainstPython compares the two (and it fails
// if the package reads a type that has no row here). Otherwise add a conversion
// to testdata/convert.py. Run
//
//	PESTI_REQUIRE=models go test ./gguf/quant
//	go test ./exec/cpu/kernel -run Matmul
//	go test ./conformance -run 'MatmulKernels|TensorTypes'
//
// Package exec/cpu/kernel says how to add an integer kernel. A Quantize function
// is needed only for writing the type.
package quant

import (
	"fmt"
	"slices"
	"strings"
)

// Type is a GGML tensor type id as stored in GGUF files.
type Type uint32

// Ids of the types in files. The missing ids are of types that were removed from
// the format or were never stored in files.
const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q8_1    Type = 9
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	Q8_K    Type = 15
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	I8      Type = 24
	I16     Type = 25
	I32     Type = 26
	I64     Type = 27
	F64     Type = 28
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	MXFP4   Type = 39
	NVFP4   Type = 40
	Q1_0    Type = 41
)

// An Info describes one tensor type. Callers must not change it.
type Info struct {
	Type Type
	Name string

	// BlockLen is the number of elements in a block, BlockBytes its size in
	// bytes. Both are 0 for a removed type.
	BlockLen, BlockBytes int

	// Removed marks an id that was removed from the format.
	Removed bool

	// Integer marks integer types, which hold no weights.
	Integer bool

	// Scales lists the floating-point scales of a block. It is nil for types
	// without blocks.
	Scales []Scale

	// Dequantize writes len(dst) float32 values from the blocks in src.
	// len(dst) must be a multiple of BlockLen and src must hold
	// len(dst)/BlockLen blocks. It is nil for removed types, and for Q1_0, for
	// which there is no reference.
	Dequantize func(dst []float32, src []byte)

	// Quantize stores the values of src as blocks in dst, with the same
	// lengths as Dequantize. It is nil for types that cannot be written.
	Quantize func(dst []byte, src []float32)
}

// Integer reports whether the type is an integer type, which holds no weights.
func (t Type) Integer() bool {
	info, ok := Lookup(t)
	return ok && info.Integer
}

// infos is indexed by id.
var infos = [...]Info{
	{Type: F32, Name: "F32", BlockLen: 1, BlockBytes: 4, Dequantize: dequantizeF32, Quantize: quantizeF32},
	{Type: F16, Name: "F16", BlockLen: 1, BlockBytes: 2, Dequantize: dequantizeF16, Quantize: quantizeF16},
	{Type: Q4_0, Name: "Q4_0", BlockLen: 32, BlockBytes: 18, Scales: f16Scales(0), Dequantize: dequantizeQ4_0, Quantize: quantizeQ4_0},
	{Type: Q4_1, Name: "Q4_1", BlockLen: 32, BlockBytes: 20, Scales: f16Scales(0, 2), Dequantize: dequantizeQ4_1, Quantize: quantizeQ4_1},
	{Type: 4, Name: "Q4_2", Removed: true},
	{Type: 5, Name: "Q4_3", Removed: true},
	{Type: Q5_0, Name: "Q5_0", BlockLen: 32, BlockBytes: 22, Scales: f16Scales(0), Dequantize: dequantizeQ5_0, Quantize: quantizeQ5_0},
	{Type: Q5_1, Name: "Q5_1", BlockLen: 32, BlockBytes: 24, Scales: f16Scales(0, 2), Dequantize: dequantizeQ5_1, Quantize: quantizeQ5_1},
	{Type: Q8_0, Name: "Q8_0", BlockLen: 32, BlockBytes: 34, Scales: f16Scales(0), Dequantize: dequantizeQ8_0, Quantize: quantizeQ8_0},
	{Type: Q8_1, Name: "Q8_1", BlockLen: 32, BlockBytes: 36, Scales: f16Scales(0, 2), Dequantize: dequantizeQ8_1},
	{Type: Q2_K, Name: "Q2_K", BlockLen: 256, BlockBytes: 84, Scales: f16Scales(80, 82), Dequantize: dequantizeQ2_K},
	{Type: Q3_K, Name: "Q3_K", BlockLen: 256, BlockBytes: 110, Scales: f16Scales(108), Dequantize: dequantizeQ3_K},
	{Type: Q4_K, Name: "Q4_K", BlockLen: 256, BlockBytes: 144, Scales: f16Scales(0, 2), Dequantize: dequantizeQ4_K, Quantize: quantizeQ4_K},
	{Type: Q5_K, Name: "Q5_K", BlockLen: 256, BlockBytes: 176, Scales: f16Scales(0, 2), Dequantize: dequantizeQ5_K, Quantize: quantizeQ5_K},
	{Type: Q6_K, Name: "Q6_K", BlockLen: 256, BlockBytes: 210, Scales: f16Scales(208), Dequantize: dequantizeQ6_K, Quantize: quantizeQ6_K},
	{Type: Q8_K, Name: "Q8_K", BlockLen: 256, BlockBytes: 292, Scales: scales(4, readF32, 0), Dequantize: dequantizeQ8_K},
	{Type: IQ2_XXS, Name: "IQ2_XXS", BlockLen: 256, BlockBytes: 66, Scales: f16Scales(0), Dequantize: dequantizeIQ2_XXS},
	{Type: IQ2_XS, Name: "IQ2_XS", BlockLen: 256, BlockBytes: 74, Scales: f16Scales(0), Dequantize: dequantizeIQ2_XS},
	{Type: IQ3_XXS, Name: "IQ3_XXS", BlockLen: 256, BlockBytes: 98, Scales: f16Scales(0), Dequantize: dequantizeIQ3_XXS},
	{Type: IQ1_S, Name: "IQ1_S", BlockLen: 256, BlockBytes: 50, Scales: f16Scales(0), Dequantize: dequantizeIQ1_S},
	{Type: IQ4_NL, Name: "IQ4_NL", BlockLen: 32, BlockBytes: 18, Scales: f16Scales(0), Dequantize: dequantizeIQ4_NL},
	{Type: IQ3_S, Name: "IQ3_S", BlockLen: 256, BlockBytes: 110, Scales: f16Scales(0), Dequantize: dequantizeIQ3_S},
	{Type: IQ2_S, Name: "IQ2_S", BlockLen: 256, BlockBytes: 82, Scales: f16Scales(0), Dequantize: dequantizeIQ2_S},
	{Type: IQ4_XS, Name: "IQ4_XS", BlockLen: 256, BlockBytes: 136, Scales: f16Scales(0), Dequantize: dequantizeIQ4_XS},
	{Type: I8, Name: "I8", BlockLen: 1, BlockBytes: 1, Integer: true, Dequantize: dequantizeI8},
	{Type: I16, Name: "I16", BlockLen: 1, BlockBytes: 2, Integer: true, Dequantize: dequantizeI16},
	{Type: I32, Name: "I32", BlockLen: 1, BlockBytes: 4, Integer: true, Dequantize: dequantizeI32},
	{Type: I64, Name: "I64", BlockLen: 1, BlockBytes: 8, Integer: true, Dequantize: dequantizeI64},
	{Type: F64, Name: "F64", BlockLen: 1, BlockBytes: 8, Dequantize: dequantizeF64},
	{Type: IQ1_M, Name: "IQ1_M", BlockLen: 256, BlockBytes: 56, Scales: scales(8, readIQ1_M, 48), Dequantize: dequantizeIQ1_M},
	{Type: BF16, Name: "BF16", BlockLen: 1, BlockBytes: 2, Dequantize: dequantizeBF16, Quantize: quantizeBF16},
	{Type: 31, Name: "Q4_0_4_4", Removed: true},
	{Type: 32, Name: "Q4_0_4_8", Removed: true},
	{Type: 33, Name: "Q4_0_8_8", Removed: true},
	{Type: TQ1_0, Name: "TQ1_0", BlockLen: 256, BlockBytes: 54, Scales: f16Scales(52), Dequantize: dequantizeTQ1_0},
	{Type: TQ2_0, Name: "TQ2_0", BlockLen: 256, BlockBytes: 66, Scales: f16Scales(64), Dequantize: dequantizeTQ2_0},
	{Type: 36, Name: "IQ4_NL_4_4", Removed: true},
	{Type: 37, Name: "IQ4_NL_4_8", Removed: true},
	{Type: 38, Name: "IQ4_NL_8_8", Removed: true},
	{Type: MXFP4, Name: "MXFP4", BlockLen: 32, BlockBytes: 17, Scales: scales(1, readE8M0, 0), Dequantize: dequantizeMXFP4},
	{Type: NVFP4, Name: "NVFP4", BlockLen: 64, BlockBytes: 36, Scales: scales(1, readUE4M3, 0, 1, 2, 3), Dequantize: dequantizeNVFP4},
	{Type: Q1_0, Name: "Q1_0", BlockLen: 128, BlockBytes: 18, Scales: f16Scales(0)},
}

// Lookup returns the row of t, and whether there is one. Removed types have a row.
func Lookup(t Type) (*Info, bool) {
	// Ids have no gaps, which a test asserts.
	if int64(t) >= int64(len(infos)) {
		return nil, false
	}
	return &infos[t], true
}

// Dequantizable returns the types whose values can be decoded, in order of id.
func Dequantizable() []Type {
	var types []Type
	for i := range infos {
		if infos[i].Dequantize != nil {
			types = append(types, Type(i))
		}
	}
	return types
}

// ByName returns the row of the type called name, such as "Q4_K" or "q4_k". It also
// finds F8E4M3, which is not a type of GGUF files.
func ByName(name string) (*Info, bool) {
	i := slices.IndexFunc(infos[:], func(in Info) bool { return strings.EqualFold(in.Name, name) })
	switch {
	case i >= 0:
		return &infos[i], true
	case strings.EqualFold(f8e4m3.Name, name):
		return &f8e4m3, true
	}
	return nil, false
}

// String returns the name of t, or "type N" for an unknown id.
func (t Type) String() string {
	if in, ok := Lookup(t); ok {
		return in.Name
	}
	if t == F8E4M3 {
		return f8e4m3.Name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// RowBytes returns the size in bytes of n elements of type t, where n is a
// multiple of the block length. It is 0 for a type that is unknown or removed.
func RowBytes(t Type, n int64) int64 {
	in, ok := Lookup(t)
	if !ok || in.Removed {
		return 0
	}
	return n / int64(in.BlockLen) * int64(in.BlockBytes)
}
