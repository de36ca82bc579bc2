package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A choice is the value of a flag that takes one of a few words; "" stands for the default.
type choice struct {
	word    string
	allowed []string
}

func (c *choice) String() string { return c.word }
func (c *choice) Type() string   { return strings.Join(c.allowed, "|") }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("expected one of %s", strings.Join(c.allowed, ", "))
	}
	c.word = s
	return nil
}

// A count is the value of a flag that takes an integer not below least.
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

// parseIDs reads token ids: a JSON array, or ids with commas, spaces or line breaks between.
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
