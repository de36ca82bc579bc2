package exec

import "pesti/exec/plan"

// pages allocates the pages of the KV caches. All layers use the same table: a page number is the
// index of a page in every layer's cache.
type pages struct {
	table []int32 // [sequences · per] page numbers, which the kernels read
	per   int     // pages of one sequence
	used  []int   // number of pages of each sequence
	free  []int32 // a stack
}

// newPages places the page table in memory that the kernels read. Every entry is a valid page
// number at all times. A plan without a table has no pages, however long its context.
func newPages(table []int32, sequences, per int) pages {
	if len(table) == 0 {
		return pages{}
	}
	p := pages{table: table, per: per, used: make([]int, sequences), free: make([]int32, 0, sequences*per)}
	for page := sequences*per - 1; page >= 0; page-- {
		p.free = append(p.free, int32(page))
	}
	clear(table)
	return p
}

// hold gives a sequence the pages for positions [0, n) and frees its other pages. It cannot fail,
// since there are enough pages for the full context of every sequence.
func (p *pages) hold(seq, n int) {
	if len(p.table) == 0 {
		return // no step reads pages
	}
	want := (n + plan.PageTokens - 1) / plan.PageTokens
	for ; p.used[seq] < want; p.used[seq]++ {
		last := len(p.free) - 1
		p.table[seq*p.per+p.used[seq]] = p.free[last]
		p.free = p.free[:last]
	}
	for ; p.used[seq] > want; p.used[seq]-- {
		p.free = append(p.free, p.table[seq*p.per+p.used[seq]-1])
	}
}
