package plan

import "math"

// Share returns a worker's half-open range of n items. Split "each" gives all items to every
// worker, "one" gives all to worker 0. Other splits give each worker a contiguous range of whole
// units; the ranges differ by one unit at most.
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

// units returns the number of units in n items; the last one may be incomplete.
func (s Split) units(n int64) int64 {
	unit := max(s.Unit, 1)
	if n%unit != 0 {
		return n/unit + 1
	}
	return n / unit
}

// items returns the number of items in the first units of n items.
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

// ShareGroup returns a worker's rows of each weight of a group. rows and rowBytes hold the number
// of rows and the bytes of a row of each weight. The units of all weights form a line on which each
// unit is as long as its bytes. The line is cut into parts of equal length; a unit belongs to the
// worker whose part contains the unit's middle.
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
		// from returns the number of rows before the first unit whose middle is in the part of
		// worker w or of a later one.
		from := func(w int64) int64 {
			at := math.Ceil((total*float64(w)/float64(workers)-before)/size - 0.5)
			return s.items(int64(min(max(at, 0), float64(units))), n)
		}
		list[i] = Range{from(worker), from(worker + 1)}
		before += float64(units) * size
	}
	return list
}
