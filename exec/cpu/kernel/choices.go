package kernel

import (
	"fmt"
	"strconv"
	"strings"

	"pesti/gguf/quant"
)

// A Reading is the order in which the products of one token read the panels of a weight. The bits are the same.
// Which is fastest depends on the processor, on the type and on the shape.
type Reading uint8

const (
	OneStream        Reading = iota // a panel after the other
	FourStreams                     // four panels at a time
	FourStreamsAhead                // and each prefetched 2 KiB ahead
	readings
)

// String returns the name of a reading in tables.
func (r Reading) String() string {
	return [readings]string{"one stream", "four streams", "four streams, prefetch"}[r]
}

// Choices are choices among kernels that give the same bits. An engine may change them between runs.
type Choices struct {
	Reading map[quant.Type]Reading // of weights of a type; a missing one is the default of the instruction set
}

// Readings returns the orders in which the kernel of that name can read weights for one token, the default first,
// in the best variant whose instruction set is in isas. It returns nil if there is no choice.
func Readings(name string, isas []string) []Reading {
	mm := lookupMatmul(name, isas)
	if mm == nil || mm.usual == nil {
		return nil
	}
	all := []Reading{*mm.usual}
	for r := range readings {
		if r != *mm.usual {
			all = append(all, r)
		}
	}
	return all
}

// ParseReading returns the reading whose name is given.
func ParseReading(name string) (Reading, error) {
	var names []string
	for r := range readings {
		if r.String() == name {
			return r, nil
		}
		names = append(names, strconv.Quote(r.String()))
	}
	return 0, fmt.Errorf("reading %q, expected one of %s", name, strings.Join(names, ", "))
}

// reading returns the choice for weights of a type, or usual if there is none.
func (c *Choices) reading(kind quant.Type, usual Reading) Reading {
	if r, ok := c.Reading[kind]; ok {
		return r
	}
	return usual
}
