package virtual

import (
	"slices"

	"pesti/exec/cuda/virtual/ptx"
)

// control has the instructions that end basic blocks.
var control = map[string]ending{"bra": branches, "brx": indexes, "ret": exits, "exit": exits, "bar": waits, "barrier": waits}

// ends reports whether and how an instruction ends its basic block.
func ends(in *ptx.Instr) (ending, bool) {
	e, ok := control[in.Op]
	if e == waits && in.Has("warp") { // bar.warp.sync concerns only one warp
		return falls, false
	}
	return e, ok
}

// leaders returns the sorted positions at which basic blocks begin, including the end of the code if there
// is a branch to it.
func leaders(code []ptx.Instr) []int {
	starts := []int{0}
	for i := range code {
		in := &code[i]
		if _, ok := ends(in); !ok {
			continue
		}
		starts = append(starts, i+1)
		for _, o := range in.Args {
			if o.Kind == ptx.Label {
				starts = append(starts, o.Index)
			}
			for _, part := range o.Parts {
				if part.Kind == ptx.Label {
					starts = append(starts, part.Index)
				}
			}
		}
	}
	slices.Sort(starts)
	return slices.DeleteFunc(slices.Compact(starts), func(at int) bool { return at > 0 && at == len(code) })
}

// merges finds the immediate post-dominator of each block, where diverged threads reconverge, with the
// algorithm of Cooper, Harvey and Kennedy ("A Simple, Fast Dominance Algorithm", 2001) on the reversed
// graph. The last block is the exit.
func merges(blocks []block) {
	exit := len(blocks) - 1
	next := make([][]int, len(blocks))
	back := make([][]int, len(blocks))
	for i := range blocks[:exit] {
		next[i] = blocks[i].successors(exit)
		for _, to := range next[i] {
			back[to] = append(back[to], i)
		}
	}
	// Post-order of the reversed graph, from the exit.
	order := make([]int, len(blocks)) // number in post-order, −1 if the exit cannot be reached
	for i := range order {
		order[i] = -1
	}
	var sorted []int
	seen := make([]bool, len(blocks))
	type visit struct{ at, edge int }
	stack := []visit{{exit, 0}}
	seen[exit] = true
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if top.edge < len(back[top.at]) {
			to := back[top.at][top.edge]
			top.edge++
			if !seen[to] {
				seen[to] = true
				stack = append(stack, visit{to, 0})
			}
			continue
		}
		order[top.at] = len(sorted)
		sorted = append(sorted, top.at)
		stack = stack[:len(stack)-1]
	}
	merge := make([]int, len(blocks))
	for i := range merge {
		merge[i] = -1
	}
	merge[exit] = exit
	for changed := true; changed; {
		changed = false
		for _, b := range slices.Backward(sorted) {
			if b == exit {
				continue
			}
			to := -1
			for _, n := range next[b] {
				if merge[n] < 0 {
					continue
				}
				if to < 0 {
					to = n
					continue
				}
				for a := n; a != to; {
					for order[a] < order[to] {
						a = merge[a]
					}
					for order[to] < order[a] {
						to = merge[to]
					}
				}
			}
			if merge[b] != to {
				merge[b], changed = to, true
			}
		}
	}
	for i := range blocks {
		blocks[i].merge = merge[i]
		if merge[i] < 0 { // in an infinite loop
			blocks[i].merge = exit
		}
	}
}

// successors returns the blocks that may follow a block.
func (b *block) successors(exit int) []int {
	switch b.ends {
	case branches:
		if b.guard.slot < 0 {
			return []int{b.target}
		}
		return []int{b.target, b.next}
	case indexes:
		return b.table
	case exits:
		if b.guard.slot < 0 {
			return []int{exit}
		}
		return []int{exit, b.next}
	}
	return []int{b.next}
}

// quietBlocks reports for each block whether nothing writes to shared memory between the barriers around
// it. Blocks that may follow each other without a barrier form one region.
func quietBlocks(code []ptx.Instr, starts []int) []bool {
	at := map[int]int{}
	region := make([]int, len(starts))
	for i, start := range starts {
		at[start], region[i] = i, i
	}
	var find func(i int) int
	find = func(i int) int {
		if region[i] != i {
			region[i] = find(region[i])
		}
		return region[i]
	}
	noisy := make([]bool, len(starts))
	for i := range starts {
		e := extent{from: starts[i], to: len(code)}
		if i+1 < len(starts) {
			e.to = starts[i+1]
		}
		for j := e.from; j < e.to; j++ {
			noisy[i] = noisy[i] || writesShared(&code[j])
		}
		if end, ok := ends(&code[e.to-1]); ok && end == waits {
			continue
		}
		for _, to := range goesTo(code, &e, at) {
			region[find(i)] = find(to)
		}
	}
	for i := range noisy {
		if noisy[i] {
			noisy[find(i)] = true
		}
	}
	quiet := make([]bool, len(starts))
	for i := range quiet {
		quiet[i] = !noisy[find(i)]
	}
	return quiet
}

// writesShared reports whether an instruction may write to shared memory.
func writesShared(in *ptx.Instr) bool {
	switch in.Op {
	case "st", "atom", "red", "cp":
		return !slices.Contains(in.Suffix, "global") && !slices.Contains(in.Suffix, "local") || in.Op == "cp"
	}
	return false
}
