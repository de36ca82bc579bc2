package kernel

import (
	"slices"

	"pesti/gguf/quant"
)

// A Packer packs panels [from, to) of a matrix of n rows of k elements. src is the matrix in the layout
// of the file and dst the whole packed matrix. Calls for different panels may run concurrently.
type Packer func(dst, src []byte, n, k, from, to int)

// A packKernel packs panels that have all 16 rows.
type packKernel struct {
	isa   string
	kind  quant.Type
	group int // elements of a row that it packs at a time
	pack  func(dst, src *byte, step, groups int)
}

// Packer returns the best packer whose instruction set is in isas. All packers store the same bytes.
func (l *Layout) Packer(isas []string) Packer {
	if p := packKernelOf(l.Type, isas); p != nil {
		return l.packer(p)
	}
	return l.Pack
}

// packKernelOf returns the best kernel for a type, or nil.
func packKernelOf(kind quant.Type, isas []string) (best *packKernel) {
	for i := range assemblyPacks {
		if p := &assemblyPacks[i]; p.kind == kind && slices.Contains(isas, p.isa) {
			best = p // later rows are better
		}
	}
	return best
}

// packer returns a Packer that uses a kernel, and portable code for what the kernel cannot pack: an
// incomplete last panel, and matrices whose rows are not whole groups.
func (l *Layout) packer(p *packKernel) Packer {
	const call = 1 << 12 // elements of a row in a call; limited because assembly cannot be preempted
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
