package gguf

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is the type of a metadata value as stored in the file.
type Kind uint32

// Kinds of metadata values.
const (
	Uint8 Kind = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
)

// kinds holds, for each kind, its name, its minimum size in bytes, and a function
// that reads one value as uint64, int64, float64, bool or string.
var kinds = [...]struct {
	name string
	size uint64
	read func(*cursor) any
}{
	Uint8:   {"u8", 1, func(c *cursor) any { return uint64(c.u8()) }},
	Int8:    {"i8", 1, func(c *cursor) any { return int64(int8(c.u8())) }},
	Uint16:  {"u16", 2, func(c *cursor) any { return uint64(c.u16()) }},
	Int16:   {"i16", 2, func(c *cursor) any { return int64(int16(c.u16())) }},
	Uint32:  {"u32", 4, func(c *cursor) any { return uint64(c.u32()) }},
	Int32:   {"i32", 4, func(c *cursor) any { return int64(int32(c.u32())) }},
	Float32: {"f32", 4, func(c *cursor) any { return float64(c.f32()) }},
	Bool:    {"bool", 1, func(c *cursor) any { return c.u8() != 0 }},
	String:  {"string", 8, func(c *cursor) any { return string(c.str()) }},
	Array:   {"array", 12, nil},
	Uint64:  {"u64", 8, func(c *cursor) any { return c.u64() }},
	Int64:   {"i64", 8, func(c *cursor) any { return int64(c.u64()) }},
	Float64: {"f64", 8, func(c *cursor) any { return c.f64() }},
}

// String returns a short name such as "u32".
func (k Kind) String() string {
	if int64(k) < int64(len(kinds)) {
		return kinds[k].name
	}
	return fmt.Sprintf("value type %d", uint32(k))
}

// A Value is a metadata value: a scalar, a string, or an array of these.
type Value struct {
	kind, elem Kind // elem is the kind of an array's elements
	n          int  // elements; 1 unless an array
	pos        int  // of raw in the file
	raw        []byte
}

// parseValue reads a value with its kind and checks it in full.
func parseValue(c *cursor) (Value, error) {
	v := Value{n: 1}
	v.kind = Kind(c.u32())
	v.elem = v.kind
	if c.err == nil && int64(v.kind) >= int64(len(kinds)) {
		return v, fmt.Errorf("value type %d is not known, expected 0 to %d", uint32(v.kind), len(kinds)-1)
	}
	if v.kind == Array {
		v.elem = Kind(c.u32())
		n := c.u64()
		if c.err != nil {
			return v, c.err
		}
		if v.elem == Array {
			return v, errors.New("array of arrays, expected an array of scalars or strings")
		}
		if int64(v.elem) >= int64(len(kinds)) {
			return v, fmt.Errorf("array of value type %d is not known, expected 0 to %d", uint32(v.elem), len(kinds)-1)
		}
		if most := uint64(c.left()) / kinds[v.elem].size; n > most {
			return v, fmt.Errorf("truncated: array of %d elements of type %s, the rest of the file holds at most %d", n, v.elem, most)
		}
		v.n = int(n)
	}
	v.pos = c.pos
	if v.elem == String {
		for i := 0; i < v.n && c.err == nil; i++ {
			c.str()
		}
	} else {
		c.take(uint64(v.n) * kinds[v.elem].size)
	}
	if c.err != nil {
		return v, c.err
	}
	v.raw = c.data[v.pos:c.pos:c.pos]
	if v.elem == Bool {
		for _, b := range v.raw {
			if b > 1 {
				return v, fmt.Errorf("bool stored as %d, expected 0 or 1", b)
			}
		}
	}
	return v, nil
}

// Kind returns the kind of v.
func (v Value) Kind() Kind { return v.kind }

// Elem returns the kind of an array's elements; for other values it is Kind.
func (v Value) Elem() Kind { return v.elem }

// Len returns the number of an array's elements; for other values it is 1.
func (v Value) Len() int { return v.n }

// TypeName returns the type in words, such as "u32" or "[49152]string".
func (v Value) TypeName() string {
	if v.kind == Array {
		return fmt.Sprintf("[%d]%s", v.n, v.elem)
	}
	return v.kind.String()
}

// Any returns v as uint64, int64, float64, bool or string, or for an array as
// []any of these. Integers and floats of all widths come as the widest.
func (v Value) Any() any {
	if v.kind != Array {
		return v.first(1)[0]
	}
	return v.first(v.n)
}

// first returns the first n elements.
func (v Value) first(n int) []any {
	c := &cursor{data: v.raw}
	all := make([]any, n)
	for i := range all {
		all[i] = kinds[v.elem].read(c)
	}
	return all
}

// MarshalJSON returns v as JSON, with arrays in full. Numbers that JSON cannot
// represent become the strings "NaN", "+Inf" and "-Inf".
func (v Value) MarshalJSON() ([]byte, error) {
	all := v.first(v.n)
	for i, x := range all {
		if f, ok := x.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			all[i] = strconv.FormatFloat(f, 'g', -1, 64)
		}
	}
	if v.kind != Array {
		return json.Marshal(all[0])
	}
	return json.Marshal(all)
}

// String returns v on one line, with long strings and arrays cut short.
func (v Value) String() string {
	const maxElems, maxBytes, maxElemBytes = 6, 100, 24
	if v.kind != Array {
		return printScalar(v.elem, v.first(1)[0], maxBytes)
	}
	var b strings.Builder
	b.WriteByte('[')
	for i, x := range v.first(min(v.n, maxElems)) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(printScalar(v.elem, x, maxElemBytes))
	}
	if v.n > maxElems {
		fmt.Fprintf(&b, ", … %d in all", v.n)
	}
	b.WriteByte(']')
	return b.String()
}

func printScalar(k Kind, x any, maxBytes int) string {
	switch x := x.(type) {
	case string:
		if len(x) <= maxBytes {
			return strconv.Quote(x)
		}
		cut := maxBytes
		for cut > maxBytes-utf8.UTFMax && !utf8.RuneStart(x[cut]) {
			cut--
		}
		return fmt.Sprintf("%s… %d bytes", strconv.Quote(x[:cut]), len(x))
	case float64:
		if k == Float32 {
			return strconv.FormatFloat(x, 'g', -1, 32)
		}
	}
	return fmt.Sprint(x)
}
