package exec

import "pesti/exec/plan"

// pages hands out the pages of the KV caches. All layers use the same table: a page number stands
// for one page in each layer's cache.
type pages struct {
	table []int32 // [sequences · perSeq], what the kernels read
	per   int     // pages of one sequence
	used  []int   // pages that each sequence has
	free  []int32 // a stack
}

// newPages lays the table of pages out in memory that the kernels see. Every entry is a valid
// page number at all times. A plan without a table has no pages, however long its context.
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

// hold gives a sequence the pages for positions [0, n) and takes back those beyond. There is a
// page for every position of every sequence, so it cannot fail.
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
