package gguf

import (
	"encoding/binary"
	"strings"
)

// Builders of files byte by byte, independent of Writer, for files that Writer would not produce.

// num returns v as a little-endian number of the width of its type.
func num[N uint8 | uint16 | uint32 | uint64](v N) string {
	b, _ := binary.Append(nil, binary.LittleEndian, v)
	return string(b)
}

// H is a header, S a string, KV a pair, A an array, T a tensor directory entry.

func H(version uint32, tensors, pairs uint64) string {
	return "GGUF" + num(version) + num(tensors) + num(pairs)
}

func S(s string) string { return num(uint64(len(s))) + s }

func KV(key string, kind Kind, value string) string { return S(key) + num(uint32(kind)) + value }

func A(kind Kind, n uint64, elems string) string { return num(uint32(kind)) + num(n) + elems }

func T(name string, dims []uint64, typ uint32, offset uint64) string {
	s := S(name) + num(uint32(len(dims)))
	for _, d := range dims {
		s += num(d)
	}
	return s + num(typ) + num(offset)
}

// pad appends zeros up to a multiple of align.
func pad(s string, align int) string {
	return s + strings.Repeat("\x00", (align-len(s)%align)%align)
}
