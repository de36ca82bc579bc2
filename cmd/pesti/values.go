package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A choice is the value of a flag that takes one of a few words, in any case; "" means the default.
type choice struct {
	word    string
	allowed []string
}

func (c *choice) String() string { return c.word }
func (c *choice) Type() string   { return strings.Join(c.allowed, "|") }

func (c *choice) Set(s string) error {
	i := slices.IndexFunc(c.allowed, func(word string) bool { return strings.EqualFold(word, s) })
	if i < 0 {
		return fmt.Errorf("expected one of %s", strings.Join(c.allowed, ", "))
	}
	c.word = c.allowed[i]
	return nil
}

// A count is the value of a flag that takes an integer of at least least.
type count struct{ n, least int64 }

func (c *count) String() string { return strconv.FormatInt(c.n, 10) }
func (c *count) Type() string   { return "N" }

func (c *count) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < c.least {
		return fmt.Errorf("expected an integer, %d or more", c.least)
	}
	c.n = n
	return nil
}

// A byteCount is the value of a flag that takes a number of bytes in millions or billions, like
// llama.cpp's gguf-split.
type byteCount struct{ n int64 }

func (b *byteCount) String() string { return strconv.FormatInt(b.n, 10) }
func (b *byteCount) Type() string   { return "N(M|G)" }

func (b *byteCount) Set(s string) error {
	number := strings.TrimRight(s, "MG")
	unit := map[string]int64{"M": 1e6, "G": 1e9}[s[len(number):]]
	n, err := strconv.ParseUint(number, 10, 32) // so that the product is an int64
	if err != nil || n == 0 || unit == 0 {
		return fmt.Errorf("expected a number followed by M or G, such as 500M")
	}
	b.n = int64(n) * unit
	return nil
}

// A bound is the value of a flag that takes a number, 0 or more.
type bound struct{ x float64 }

func (b *bound) String() string { return "" }
func (b *bound) Type() string   { return "X" }

func (b *bound) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x >= 0) || strings.Trim(s, "0123456789.eE+-") != "" { // Go also accepts 0x1p-3, 1_0 and inf
		return fmt.Errorf("expected a number, 0 or more, such as 1e-4")
	}
	b.x = x
	return nil
}

// parseIDs parses token ids: a JSON array, or ids separated by commas, spaces or line breaks.
func parseIDs(s string) ([]int32, error) {
	s = strings.TrimSpace(s)
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if s, ok = strings.CutSuffix(inner, "]"); !ok {
			return nil, fmt.Errorf("found [ without a ] at the end, expected an array such as [785, 3974]")
		}
	}
	fields := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' })
	ids := make([]int32, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("found %.40q, expected a token id", f)
		}
		ids[i] = int32(n)
	}
	return ids, nil
}
