package virtual

import "slices"

// sectorBytes is what a request to global memory is cut into: a sector of a line of cache (CUDA C++ Best Practices
// Guide, "Coalesced Access to Global Memory").
const sectorBytes = 32

// sectors is the number of sectors that n bytes touch.
func sectors(address, n uint64) int64 {
	return int64((address+n-1)/sectorBytes - address/sectorBytes + 1)
}

// coalesced returns how many sectors lanes touch that access total bytes each, and how few they could be.
func coalesced(at *longs, mask uint32, total uint64) (touched, least int64) {
	var list [32]uint64
	n, ascending := 0, true
	for m := mask; m != 0; m &= m - 1 {
		address := at[first(m)]
		ascending = ascending && (n == 0 || list[n-1] <= address)
		list[n&31] = address
		n++
	}
	if !ascending {
		slices.Sort(list[:n])
	}
	var bytes uint64
	for i, address := range list[:n] { // an aligned access of at most 16 bytes is in one sector
		if i == 0 || address != list[i-1] {
			bytes += total
		}
		if i == 0 || address/sectorBytes != list[i-1]/sectorBytes {
			touched++
		}
	}
	return touched, int64((bytes + sectorBytes - 1) / sectorBytes)
}

// Shared memory has 32 banks of 4 bytes, each of which gives one of its words in a pass (CUDA C++ Programming Guide,
// "Shared Memory").
const banks = 32

// passes returns how many passes over the banks a request takes, and how few it could. Lanes that access up to 4 bytes
// each are served together, of 8 bytes half of them at a time, and of 16 a quarter. period is that of the addresses.
func passes(at *longs, mask uint32, period int, total uint64) (taken, least int64) {
	total = max(total, 4)
	together := int(128 / total)
	if period <= together && period < 32 { // lanes served later want the same as those before
		n := int64(32 / together)
		return n * mostOfBank(at, uint32(span(0, uint64(period))), total), n
	}
	if mask == 0xffffffff && at[1] == at[0]+total && patternOf(at, total) == oneBehindAnother {
		n := int64(32 / together)
		return n, n
	}
	for lane := 0; lane < 32; lane += together {
		if m := mask & uint32(span(uint64(lane), uint64(together))); m != 0 {
			taken += mostOfBank(at, m, total)
			least++
		}
	}
	return taken, least
}

// mostOfBank returns the most different words that lanes want of one bank. To lanes that access 8 or 16 bytes, banks
// are as wide, and fewer.
func mostOfBank(at *longs, mask uint32, width uint64) int64 {
	var word [banks]uint64 // that a bank gives first
	var used uint32
	var rest [banks]uint64 // what banks have to give after that
	n := 0
	count := banks * 4 / width
	for m := mask; m != 0; m &= m - 1 {
		w := at[first(m)] / width
		switch bank := w % count & (banks - 1); {
		case used>>bank&1 == 0:
			used |= 1 << bank
			word[bank] = w
		case word[bank] != w:
			rest[n&(banks-1)] = w
			n++
		}
	}
	if n == 0 {
		return 1
	}
	slices.Sort(rest[:n])
	var most int64
	var more [banks]int64
	for i, w := range rest[:n] {
		if i == 0 || w != rest[i-1] {
			more[w%count]++
			most = max(most, more[w%count])
		}
	}
	return most + 1
}
