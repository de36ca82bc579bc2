package kernel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pesti/gguf/quant"
)

// A ReadOrder is the order in which the products of one token read the panels of a weight. All orders give the same
// bits. Which is fastest depends on the processor, on the type and on the shape.
type ReadOrder uint8

const (
	OneStream        ReadOrder = iota // one panel after another
	OneStreamAhead                    // the same, prefetched 2 KiB ahead into all caches
	OneStreamNTA                      // the same, prefetched 2 KiB ahead past the outer caches (PREFETCHNTA)
	FourStreams                       // four panels at a time
	FourStreamsAhead                  // four panels at a time, each prefetched 2 KiB ahead
	readOrders
)

// readOrderNames are the names in files and tables.
var readOrderNames = [readOrders]string{"one-stream", "one-stream-prefetch", "one-stream-nta", "four-streams", "four-streams-prefetch"}

func (r ReadOrder) String() string { return readOrderNames[r] }

// ParseReadOrder returns the order of that name.
func ParseReadOrder(name string) (ReadOrder, error) {
	var names []string
	for r, n := range readOrderNames {
		if n == name {
			return ReadOrder(r), nil
		}
		names = append(names, strconv.Quote(n))
	}
	return 0, fmt.Errorf("order %q, expected one of %s", name, strings.Join(names, ", "))
}

// ReadOrders returns the orders that the matmul kernel of that name has for one token, the default first, in the
// best variant whose instruction set is in isas. It returns nil if there is only one.
func ReadOrders(name string, isas []string) []ReadOrder {
	if mm := lookupMatmul(name, isas); mm != nil {
		return slices.Clone(mm.orders)
	}
	return nil
}

// Choices are choices among kernels that give the same bits. An engine may change them between runs.
type Choices struct {
	ReadOrder map[quant.Type]ReadOrder // by type of the weights; a missing type has the default of the kernel
}

// readOrder returns the choice for weights of a type if it is in orders, and otherwise orders[0].
func (c *Choices) readOrder(kind quant.Type, orders []ReadOrder) ReadOrder {
	if r, ok := c.ReadOrder[kind]; ok && slices.Contains(orders, r) {
		return r
	}
	return orders[0]
}
