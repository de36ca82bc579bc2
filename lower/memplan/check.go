package memplan

import (
	"cmp"
	"fmt"
	"slices"
)

// Check returns nil if the offsets are a plan for the buffers in an arena of the given size: one offset per
// buffer, a multiple of its alignment, the buffer inside the arena, and no two buffers in the same bytes at the
// same step. The error names the buffer, or the two, that break a rule.
//
// It checks the bytes of a buffer without the padding that planners add. A buffer of size 0 or with
// an empty lifetime may have any offset.
func Check(bufs []Buffer, offsets []int64, size int64) error {
	if len(offsets) != len(bufs) {
		return fmt.Errorf("%d offsets for %d buffers, expected one for each", len(offsets), len(bufs))
	}
	type event struct {
		step, buf int
		begins    bool
	}
	var events []event
	for i, b := range bufs {
		if err := valid(b); err != nil {
			return fmt.Errorf("buffer %d: %w", i, err)
		}
		o, align := offsets[i], b.alignment()
		if o < 0 || o%align != 0 {
			return fmt.Errorf("buffer %d: offset %d, expected a multiple of %d from 0 on", i, o, align)
		}
		if b.Size == 0 || b.First == b.Last {
			continue
		}
		if o > size || b.Size > size-o { // o + b.Size could overflow
			return fmt.Errorf("buffer %d: %d bytes at offset %d, expected to end within the arena's %d bytes", i, b.Size, o, size)
		}
		events = append(events, event{b.First, i, true}, event{b.Last, i, false})
	}
	// Sweep over the steps. The live buffers are disjoint and sorted by offset, so a new one can
	// collide with its neighbors only.
	slices.SortFunc(events, func(a, b event) int {
		if c := cmp.Compare(a.step, b.step); c != 0 {
			return c
		}
		switch { // lifetimes are half-open, so ends come before begins
		case !a.begins && b.begins:
			return -1
		case a.begins && !b.begins:
			return 1
		}
		return cmp.Compare(a.buf, b.buf)
	})
	var live []int
	for _, e := range events {
		at, found := slices.BinarySearchFunc(live, offsets[e.buf], func(i int, o int64) int { return cmp.Compare(offsets[i], o) })
		switch {
		case !e.begins:
			live = slices.Delete(live, at, at+1)
			continue
		case found:
			return collision(bufs, offsets, live[at], e.buf)
		case at > 0 && offsets[live[at-1]]+bufs[live[at-1]].Size > offsets[e.buf]:
			return collision(bufs, offsets, live[at-1], e.buf)
		case at < len(live) && offsets[e.buf]+bufs[e.buf].Size > offsets[live[at]]:
			return collision(bufs, offsets, live[at], e.buf)
		}
		live = slices.Insert(live, at, e.buf)
	}
	return nil
}

func collision(bufs []Buffer, offsets []int64, i, j int) error {
	i, j = min(i, j), max(i, j)
	a, b := bufs[i], bufs[j]
	return fmt.Errorf("buffers %d and %d collide: steps [%d, %d) and [%d, %d), bytes [%d, %d) and [%d, %d)",
		i, j, a.First, a.Last, b.First, b.Last, offsets[i], offsets[i]+a.Size, offsets[j], offsets[j]+b.Size)
}
