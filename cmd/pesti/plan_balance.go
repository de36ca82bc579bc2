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

// printBalance prints the bytes that each worker reads in a full run of a program, with the imbalance.
func printBalance(w io.Writer, program string, b *plan.Balance) error {
	fmt.Fprintf(w, "\n%s, %d tokens at position %d: reads %s of weights and %s of the KV cache, %.3g G multiplications; imbalance %.1f %%\n",
		program, b.Tokens, b.Position, plan.HumanBytes(b.Cost.Weights), plan.HumanBytes(b.Cost.State), float64(b.Cost.MACs)/1e9, 100*b.Imbalance)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "waves\t")
	kinds := b.Kinds()
	if len(kinds) == 0 {
		return nil
	}
	workers, devices := 0, 0
	for _, k := range kinds {
		workers, devices = max(workers, len(k.Bytes)), max(devices, k.Device)
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
		fmt.Fprintf(t, "%d\t", k.Waves)
		if devices > 0 {
			fmt.Fprintf(t, "%d\t", k.Device)
		}
		imbalance, columns := fmt.Sprintf("%.1f %%", 100*k.Imbalance), workers
		if len(k.Bytes) == 1 {
			imbalance = "" // a single worker
		}
		if workers > mostColumns {
			k.Bytes, columns = []int64{slices.Min(k.Bytes), slices.Max(k.Bytes)}, 2
		}
		for _, n := range k.Bytes {
			fmt.Fprintf(t, "%s\t", plan.HumanBytes(n))
		}
		fmt.Fprintf(t, "%s%s\t  %s\n", strings.Repeat("\t", columns-len(k.Bytes)), imbalance, strings.Join(k.Kernels, ", "))
	}
	return t.Flush()
}
