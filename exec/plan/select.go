package plan

// ProgramFor returns the program that runs a workload: the one with a chunk where every sequence has whole
// chunks of tokens, from a multiple of the chunk on; else the first program that is large enough; nil where
// none is.
func (p *Plan) ProgramFor(l Workload) *Program {
	each := l.T / max(l.Seqs, 1)
	return p.SelectProgram(l.T, l.R, func(chunk int64) bool { return l.T%max(l.Seqs, 1) == 0 && each%chunk == 0 && l.Pos%chunk == 0 })
}

// SelectProgram is ProgramFor for t tokens and r rows of logits, where whole reports whether the tokens are
// whole chunks.
func (p *Plan) SelectProgram(t, r int64, whole func(chunk int64) bool) *Program {
	var fits *Program
	for i := range p.Programs {
		g := &p.Programs[i]
		switch {
		case t > g.MaxT || r > g.MaxR:
		case g.Chunk > 0 && whole(g.Chunk):
			return g
		case g.Chunk == 0 && fits == nil:
			fits = g
		}
	}
	return fits
}

// Chunk returns the tokens of a chunk of the program that has one, 0 where none has.
func (p *Plan) Chunk() int64 {
	for i := range p.Programs {
		if c := p.Programs[i].Chunk; c > 0 {
			return c
		}
	}
	return 0
}

// ChunkLen returns how many of n tokens of one sequence, from position pos on, the first step takes: those up to
// the next multiple of the chunk, or whole chunks, or all that remain. A prompt that starts at position 0 is
// therefore split at the same positions for any ubatch that is not below the chunk.
func (p *Plan) ChunkLen(pos, n int64) int64 {
	for i := range p.Programs {
		c := p.Programs[i].Chunk
		if c == 0 {
			continue
		}
		head := (c - pos%c) % c
		switch whole := (n - head) / c * c; {
		case n < head+c: // no whole one
		case head > 0:
			n = head
		default:
			n = min(whole, p.Programs[i].MaxT)
		}
	}
	return min(n, p.Target.Ubatch)
}
