package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

var le = binary.LittleEndian

// A cursor reads little-endian fields from a byte slice. The first read beyond
// the end sets err; this and all later reads return zero values.
type cursor struct {
	data []byte
	pos  int
	err  error
}

func (c *cursor) left() int { return len(c.data) - c.pos }

// take returns the next n bytes, without a copy.
func (c *cursor) take(n uint64) []byte {
	if c.err != nil {
		return nil
	}
	if n > uint64(c.left()) {
		c.err = fmt.Errorf("truncated: %d bytes wanted at offset %d, %d left", n, c.pos, c.left())
		return nil
	}
	b := c.data[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return b
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (c *cursor) f32() float32 { return math.Float32frombits(c.u32()) }
func (c *cursor) f64() float64 { return math.Float64frombits(c.u64()) }

// str reads a string: its length in bytes as a u64, then the bytes.
func (c *cursor) str() []byte { return c.take(c.u64()) }
