package plan

// PeakBytes returns the most bytes of a program's buffers that are live in one wave, each size rounded up to
// ArenaAlign: no arena is smaller. Workers run through a wave without waiting for each other, so a buffer is
// live in whole waves. Buffers that counts does not accept are left out; nil accepts all. The plan must verify.
func (g *Program) PeakBytes(counts func(*Buffer) bool) int64 {
	var wave []int // of each step
	for i := range g.Steps() {
		wave = append(wave, i)
	}
	change := make([]int64, len(g.Waves)+1) // in what lives
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

// PeakValueBytes returns the most bytes of values that are live in one wave of any program: how large the
// arena would be if no step had scratch memory.
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
