package graph

import "pesti/gguf/quant"

// BlockOf returns the elements and the bytes of a storage block of t, or 0, 0 for a type without a
// fixed size: KV, whose format the lowering chooses, and unknown names.
func BlockOf(t DType) (elems, bytes int64) {
	switch t {
	case F32, I32:
		return 1, 4
	case Q8x2:
		return 32, 76
	case Q8:
		return 32, 44
	case KV:
		return 0, 0
	}
	if info, ok := quant.ByName(string(t)); ok {
		return int64(info.BlockLen), int64(info.BlockBytes)
	}
	return 0, 0
}

// Bytes returns the size of a value of type t, where size returns the extent of a dim; 0 for a type
// without a fixed size.
func (t Type) Bytes(size func(Dim) int64) int64 {
	block, bytes := BlockOf(t.DType)
	if block == 0 {
		return 0
	}
	elems := int64(1)
	for _, d := range t.Shape {
		elems *= size(d)
	}
	return elems / block * bytes
}
