package virtual

import "slices"

// sectorBytes is the size of the transactions of global memory, the sectors of a cache line (CUDA C++ Best
// Practices Guide, "Coalesced Access to Global Memory").
const sectorBytes = 32

// sectors returns the number of sectors that n bytes touch.
func sectors(address, n uint64) int64 {
	return int64((address+n-1)/sectorBytes - address/sectorBytes + 1)
}

// coalesced returns the number of sectors that lanes with total bytes each touch, and the least number
// possible for the same bytes.
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

// Shared memory has 32 banks, each of which delivers one 4-byte word per pass (CUDA C++ Programming Guide,
// "Shared Memory").
const banks = 32

// passes returns the number of passes over the banks for a request, and the least number possible. All
// lanes are served together if they access up to 4 bytes each, half of them at a time for 8 bytes, and a
// quarter for 16. period is the period of the addresses.
func passes(at *longs, mask uint32, period int, total uint64) (taken, least int64) {
	total = max(total, 4)
	together := int(128 / total)
	if period <= together && period < 32 { // lanes served later access the same words as earlier ones
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

// mostOfBank returns the largest number of distinct words that lanes access in one bank. For accesses of 8
// or 16 bytes, banks count as correspondingly wider and fewer.
func mostOfBank(at *longs, mask uint32, width uint64) int64 {
	var word [banks]uint64 // first word of a bank
	var used uint32
	var rest [banks]uint64 // further words
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
