package plan

import "math"

// Share returns the half-open range of n items that is a worker's: all for "each", all for worker
// 0 for "one", else a contiguous range of whole units, sizes differing by one unit at most.
func (s Split) Share(n, worker, workers int64) (lo, hi int64) {
	switch s.By {
	case "each":
		return 0, n
	case "one":
		if worker > 0 {
			return n, n
		}
		return 0, n
	}
	units := s.units(n)
	lo, hi = part(units, worker, workers), part(units, worker+1, workers)
	return s.items(lo, n), s.items(hi, n)
}

// units returns how many units n items are, the last of which may be cut short.
func (s Split) units(n int64) int64 {
	unit := max(s.Unit, 1)
	if n%unit != 0 {
		return n/unit + 1
	}
	return n / unit
}

// items returns how many of n items the first units are.
func (s Split) items(units, n int64) int64 {
	if units >= s.units(n) {
		return n
	}
	return units * max(s.Unit, 1)
}

// part returns n·i/of rounded down, without the product, which may overflow.
func part(n, i, of int64) int64 { return n/of*i + n%of*i/of }

// A Range is the rows [Lo, Hi) of a weight.
type Range struct{ Lo, Hi int64 }

// ShareGroup returns which rows of each weight of a group are a worker's. rows and rowBytes are
// those of each weight. The units of all of them are laid end to end, each as long as a row's
// bytes, and cut into parts of equal length; a unit belongs to the worker in whose part its middle
// lies.
func (s Split) ShareGroup(rows, rowBytes []int64, worker, workers int64) []Range {
	list := make([]Range, len(rows))
	if s.By == "one" {
		for i, n := range rows {
			list[i].Lo, list[i].Hi = s.Share(n, worker, workers)
		}
		return list
	}
	total := 0.0
	for i, n := range rows {
		total += float64(s.units(n)) * float64(rowBytes[i])
	}
	before := 0.0
	for i, n := range rows {
		units, size := s.units(n), float64(rowBytes[i])
		// from returns the rows before the first unit whose middle lies in the part of worker w or after.
		from := func(w int64) int64 {
			at := math.Ceil((total*float64(w)/float64(workers)-before)/size - 0.5)
			return s.items(int64(min(max(at, 0), float64(units))), n)
		}
		list[i] = Range{from(worker), from(worker + 1)}
		before += float64(units) * size
	}
	return list
}
