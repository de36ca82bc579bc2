package plan

// ProgramFor returns the program that runs a step: the one with a chunk where every sequence has
// whole chunks of tokens from a multiple of the chunk on, else the first that the step fits; nil
// where it fits none.
func (p *Plan) ProgramFor(l Load) *Program {
	each := l.T / max(l.Seqs, 1)
	return p.Fit(l.T, l.R, func(chunk int64) bool { return l.T%max(l.Seqs, 1) == 0 && each%chunk == 0 && l.Pos%chunk == 0 })
}

// Fit is ProgramFor for a step of t tokens and r rows of logits, of which whole says whether its
// tokens are whole chunks.
func (p *Plan) Fit(t, r int64, whole func(chunk int64) bool) *Program {
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

// Cut returns how many of n tokens of one sequence, from position pos on, the first step takes where
// they are evaluated in as few steps as whole chunks allow: those up to the next multiple of the
// chunk, whole chunks, or what is left. A prompt from position 0 on is so cut into the same chunks
// whatever ubatch is, if that is not below the chunk.
func (p *Plan) Cut(pos, n int64) int64 {
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
