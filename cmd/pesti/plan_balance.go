package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"pesti/exec/plan"
)

// mostColumns is the largest number of workers with separate columns.
const mostColumns = 8

// A waveKind groups the waves of a program that run the same kernels.
type waveKind struct {
	device    int
	kernels   string
	waves     int
	bytes     []int64 // read by each worker in all these waves
	imbalance float64 // the worst
}

// printBalance prints the bytes that each worker reads in a full run of a program, with the imbalance.
func printBalance(w io.Writer, program string, b *plan.Balance) error {
	fmt.Fprintf(w, "\n%s, %d tokens at position %d: reads %s of weights and %s of the KV cache, %.3g G multiplications; imbalance %.1f %%\n",
		program, b.Tokens, b.Position, plan.HumanBytes(b.Cost.Weights), plan.HumanBytes(b.Cost.State), float64(b.Cost.MACs)/1e9, 100*b.Imbalance)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "waves\t")
	kinds := waveKinds(b)
	if len(kinds) == 0 {
		return nil
	}
	workers, devices := 0, 0
	for _, k := range kinds {
		workers, devices = max(workers, len(k.bytes)), max(devices, k.device)
	}
	if devices > 0 {
		fmt.Fprintf(t, "device\t")
	}
	if workers > mostColumns {
		fmt.Fprintf(t, "least of %d workers\tmost\t", workers)
	} else {
		for i := range workers {
			fmt.Fprintf(t, "worker %d\t", i)
		}
	}
	fmt.Fprintf(t, "imbalance\t  steps\n")
	for _, k := range kinds {
		fmt.Fprintf(t, "%d\t", k.waves)
		if devices > 0 {
			fmt.Fprintf(t, "%d\t", k.device)
		}
		imbalance, columns := fmt.Sprintf("%.1f %%", 100*k.imbalance), workers
		if len(k.bytes) == 1 {
			imbalance = "" // a single worker
		}
		if workers > mostColumns {
			k.bytes, columns = []int64{slices.Min(k.bytes), slices.Max(k.bytes)}, 2
		}
		for _, n := range k.bytes {
			fmt.Fprintf(t, "%s\t", plan.HumanBytes(n))
		}
		fmt.Fprintf(t, "%s%s\t  %s\n", strings.Repeat("\t", columns-len(k.bytes)), imbalance, k.kernels)
	}
	return t.Flush()
}

// waveKinds sums the waves that run the same kernels, in order of first occurrence.
func waveKinds(b *plan.Balance) []waveKind {
	var kinds []waveKind
	for i := range b.Waves {
		w := &b.Waves[i]
		name := strings.Join(w.Kernels, ", ")
		at := slices.IndexFunc(kinds, func(k waveKind) bool { return k.kernels == name && k.device == w.Device })
		if at < 0 {
			at = len(kinds)
			kinds = append(kinds, waveKind{device: w.Device, kernels: name, bytes: make([]int64, len(w.Bytes))})
		}
		k := &kinds[at]
		k.waves++
		k.imbalance = max(k.imbalance, w.Imbalance)
		for j, n := range w.Bytes {
			k.bytes[j] += n
		}
	}
	return kinds
}
