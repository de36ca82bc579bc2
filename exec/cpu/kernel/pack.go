package kernel

import (
	"slices"

	"pesti/gguf/quant"
)

// A Packer stores the panels from ≤ p < to of a matrix of n rows of k elements, which src holds as
// in the file, where they belong in dst, which has room for all of it. Calls for different panels
// may run side by side.
type Packer func(dst, src []byte, n, k, from, to int)

// A packKernel packs panels whose 16 rows are all there.
type packKernel struct {
	isa   string
	kind  quant.Type
	group int // elements of a row that it takes at a time
	pack  func(dst, src *byte, step, groups int)
}

// Packer returns the best packer for the instruction sets that may be used. All store the same bytes.
func (l *Layout) Packer(isas []string) Packer {
	if p := packKernelOf(l.Type, isas); p != nil {
		return l.packer(p)
	}
	return l.Pack
}

// packKernelOf returns the best kernel for a type, nil where there is none.
func packKernelOf(kind quant.Type, isas []string) (best *packKernel) {
	for i := range assemblyPacks {
		if p := &assemblyPacks[i]; p.kind == kind && slices.Contains(isas, p.isa) {
			best = p // later rows are better
		}
	}
	return best
}

// packer packs with a kernel, and portably what it cannot: the last panel where rows are missing,
// and matrices whose rows are no whole groups.
func (l *Layout) packer(p *packKernel) Packer {
	const call = 1 << 12 // elements of a row: a goroutine in assembly cannot be interrupted
	info := l.info()
	fileBytes, panelBytes := p.group/info.BlockLen*info.BlockBytes, p.group/l.Block*l.Bytes
	return func(dst, src []byte, n, k, from, to int) {
		whole := min(to, n/panelRows)
		if k%p.group != 0 {
			whole = from
		}
		groups := k / p.group
		step := groups * fileBytes
		for i := from; i < whole; i++ {
			panel := dst[i*groups*panelBytes:][:groups*panelBytes]
			rows := src[i*panelRows*step:][:panelRows*step]
			for at := 0; at < groups; at += call / p.group {
				p.pack(&panel[at*panelBytes], &rows[at*fileBytes], step, min(call/p.group, groups-at))
			}
		}
		l.Pack(dst, src, n, k, max(whole, from), to)
	}
}
