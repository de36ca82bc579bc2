package plan

// ProgramFor returns the program that runs a workload: the program with a chunk if every sequence
// has whole chunks of tokens, from a multiple of the chunk; else the first program that is large
// enough; else nil.
func (p *Plan) ProgramFor(l Workload) *Program {
	each := l.T / max(l.Seqs, 1)
	return p.SelectProgram(l.T, l.R, func(chunk int64) bool { return l.T%max(l.Seqs, 1) == 0 && each%chunk == 0 && l.Pos%chunk == 0 })
}

// SelectProgram is ProgramFor for t tokens and r rows of logits. whole reports whether every
// sequence has whole chunks.
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

// Chunk returns the number of tokens in a chunk of the program with a chunk, 0 if there is no such
// program.
func (p *Plan) Chunk() int64 {
	for i := range p.Programs {
		if c := p.Programs[i].Chunk; c > 0 {
			return c
		}
	}
	return 0
}

// ChunkLen returns how many of n tokens of one sequence, from position pos on, the first run takes:
// the tokens up to the next multiple of the chunk, or whole chunks, or all remaining tokens. A
// prompt that starts at position 0 is therefore split at the same positions for every ubatch of at
// least one chunk.
func (p *Plan) ChunkLen(pos, n int64) int64 {
	for i := range p.Programs {
		c := p.Programs[i].Chunk
		if c == 0 {
			continue
		}
		head := (c - pos%c) % c
		switch whole := (n - head) / c * c; {
		case n < head+c: // no whole chunk
		case head > 0:
			n = head
		default:
			n = min(whole, p.Programs[i].MaxT)
		}
	}
	return min(n, p.Target.Ubatch)
}
