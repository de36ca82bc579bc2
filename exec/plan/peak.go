package plan

// PeakBytes returns the most bytes of a program's buffers that are live in one wave, each size
// rounded up to ArenaAlign. It is a lower bound for the arena. A buffer is live for whole waves,
// since workers do not wait for each other inside a wave. counts selects buffers; nil selects all.
// The plan must verify.
func (g *Program) PeakBytes(counts func(*Buffer) bool) int64 {
	var wave []int // of each step
	for i := range g.Steps() {
		wave = append(wave, i)
	}
	change := make([]int64, len(g.Waves)+1) // of the live bytes at each wave
	for i := range g.Buffers {
		if b := &g.Buffers[i]; counts == nil || counts(b) {
			change[wave[b.First]] += rounded(b.Size)
			change[wave[b.Last-1]+1] -= rounded(b.Size)
		}
	}
	live, most := int64(0), int64(0)
	for _, c := range change {
		live += c
		most = max(most, live)
	}
	return most
}

// PeakValueBytes returns the most bytes of values that are live in one wave of any program: a lower
// bound for an arena without scratch memory.
func (p *Plan) PeakValueBytes() int64 {
	most := int64(0)
	for i := range p.Programs {
		g := &p.Programs[i]
		scratch := map[int]bool{}
		for _, st := range g.Steps() {
			scratch[st.Scratch] = true
		}
		most = max(most, g.PeakBytes(func(b *Buffer) bool { return !scratch[b.ID] }))
	}
	return most
}
