package memplan

import (
	"cmp"
	"slices"
)

// level is the number of live bytes from one step to the step of the next level.
type level struct {
	step int
	live int64
}

// LowerBound returns the largest number of bytes that are live in one step, with each size rounded
// up to its alignment. No plan is smaller. The result is meaningless for buffers that Best does not
// accept.
func LowerBound(bufs []Buffer) int64 {
	items := make([]item, 0, len(bufs))
	for i, b := range bufs {
		if it := itemOf(i, b); it.needsMemory() {
			items = append(items, it)
		}
	}
	return peak(profileOf(items))
}

func peak(profile []level) int64 {
	var most int64
	for _, l := range profile {
		most = max(most, l.live)
	}
	return most
}

// profileOf returns one level per step at which a buffer's lifetime begins or ends, in order of
// steps.
func profileOf(items []item) []level {
	changes := make([]level, 0, 2*len(items))
	for _, it := range items {
		changes = append(changes, level{it.first, it.size}, level{it.last, -it.size})
	}
	slices.SortFunc(changes, func(a, b level) int { return cmp.Compare(a.step, b.step) })
	var profile []level
	var live int64
	for i, c := range changes {
		live += c.live
		if i+1 == len(changes) || changes[i+1].step != c.step {
			profile = append(profile, level{c.step, live})
		}
	}
	return profile
}
