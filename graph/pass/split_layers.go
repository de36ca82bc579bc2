package pass

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"pesti/graph"
	"pesti/ops"
)

// SplitLayers returns the pass that assigns contiguous layers to each of several devices, so that
// the bytes of weights are balanced. Nodes before the layers (the embedding) go to the first
// device, nodes after them (the output) to the last.
//
// If onHost is not negative, device 0 is the host: it gets the first onHost layers, the embedding
// and the output, and the other devices share the other layers.
//
// A value that another device needs is transferred there once.
func SplitLayers(devices, onHost int) Pass {
	return Pass{Name: "split_layers", Required: true, Doc: "assign layers to devices, balanced by bytes of weights", Run: func(c *Context, g *graph.Graph) error {
		layer, bytes := layersOf(g)
		owner, err := share(bytes, devices, onHost)
		if err != nil {
			return err
		}
		for i, n := range g.Nodes {
			if !n.Op.Everywhere {
				n.Device = owner[layer[i]]
			}
		}
		for d := range devices {
			if i := slices.Index(owner[1:len(owner)-1], d); i >= 0 {
				c.Applied(fmt.Sprintf("blk.%d", i))
			}
		}
		return transfers(g)
	}}
}

// layersOf returns the part of the graph that each node belongs to, and the bytes of weights of
// each part. Part 0 is everything before the layers; then come the layers, and then a part for
// everything after them. A node between two layers belongs to the earlier one.
func layersOf(g *graph.Graph) (part []int, bytes []int64) {
	last, layers := -1, 0
	for i, n := range g.Nodes {
		if l := layerOf(n.Name()); l >= 0 {
			last, layers = i, max(layers, l+1)
		}
	}
	bytes = make([]int64, layers+2)
	at := 0
	counted := map[*graph.Value]int{}
	for i, n := range g.Nodes {
		if l := layerOf(n.Name()); l >= 0 {
			at = l + 1
		} else if i > last {
			at = layers + 1
		}
		part = append(part, at)
		for _, v := range n.In {
			if v == nil || !v.IsWeight() {
				continue
			}
			if p, ok := counted[v]; !ok || p != at {
				counted[v] = at
				bytes[at] += v.Type.Bytes(func(d graph.Dim) int64 { return d.N })
			}
		}
	}
	return part, bytes
}

// layerOf returns the N of a name blk.N.…, or −1.
func layerOf(name string) int {
	rest, ok := strings.CutPrefix(name, "blk.")
	digits, _, dot := strings.Cut(rest, ".")
	n, err := strconv.Atoi(digits)
	if !ok || !dot || err != nil || n < 0 {
		return -1
	}
	return n
}

// share returns the device of each part.
func share(bytes []int64, devices, onHost int) ([]int, error) {
	layers := len(bytes) - 2
	owner := make([]int, len(bytes))
	parts, first := slices.Clone(bytes[1:layers+1]), 0
	if onHost >= 0 {
		parts, first = parts[min(onHost, layers):], 1
	}
	if n := devices - first; len(parts) < n {
		return nil, fmt.Errorf("%d devices for %d layers, expected at most one for each", n, len(parts))
	}
	if onHost < 0 {
		parts[0] += bytes[0]
		parts[len(parts)-1] += bytes[layers+1]
	}
	ends := balance(parts, devices-first)
	for i := range parts {
		for ends[0] <= i {
			ends, first = ends[1:], first+1
		}
		owner[layers-len(parts)+1+i] = first
	}
	if onHost < 0 {
		owner[layers+1] = devices - 1
	}
	return owner, nil
}

// balance cuts a list into n contiguous parts of at least one element and returns the end of each
// part. It minimizes the largest sum, and among equal cuts the sum of squares.
func balance(sizes []int64, n int) []int {
	most, _ := optimalCuts(sizes, n, func(before, part float64) float64 { return max(before, part) })
	_, ends := optimalCuts(sizes, n, func(before, part float64) float64 {
		if part > most {
			return math.Inf(1)
		}
		return before + part*part
	})
	return ends
}

// optimalCuts cuts a list into n contiguous parts of at least one element at the least cost, and
// returns the cost and the end of each part. with(before, part) returns the cost after adding a
// part with sum part to parts with cost before.
func optimalCuts(sizes []int64, n int, with func(before, part float64) float64) (float64, []int) {
	sum := make([]int64, len(sizes)+1)
	for i, s := range sizes {
		sum[i+1] = sum[i] + s
	}
	// cost[k][i] is the least cost of the first i elements in k parts, and from[k][i] the begin of
	// the last part.
	cost, from := make([][]float64, n+1), make([][]int, n+1)
	for k := range cost {
		cost[k], from[k] = slices.Repeat([]float64{math.Inf(1)}, len(sum)), make([]int, len(sum))
	}
	cost[0][0] = 0
	for k := 1; k <= n; k++ {
		for i := k; i < len(sum); i++ {
			for j := k - 1; j < i; j++ {
				if c := with(cost[k-1][j], float64(sum[i]-sum[j])); c < cost[k][i] {
					cost[k][i], from[k][i] = c, j
				}
			}
		}
	}
	ends := make([]int, n)
	for k, i := n, len(sizes); k > 0; k, i = k-1, from[k][i] {
		ends[k-1] = i
	}
	return cost[n][len(sizes)], ends
}

// transfers inserts transfers of values to the devices of the nodes that read them.
func transfers(g *graph.Graph) error {
	type place struct {
		v      *graph.Value
		device int
	}
	brought := map[place]*graph.Value{}
	for _, n := range slices.Clone(g.Nodes) {
		for i, v := range n.In {
			if v == nil || v.IsWeight() || v.Def.Op.Everywhere || v.Def.Device == n.Device {
				continue
			}
			at := place{v, n.Device}
			if brought[at] == nil {
				out, err := g.Insert(n, ops.Transfer, []*graph.Value{v}, nil, g.Fresh(fmt.Sprintf("on%d.%s", n.Device, v.Name)))
				if err != nil {
					return err
				}
				brought[at] = out[0]
			}
			n.In[i] = brought[at]
		}
	}
	return nil
}
