package exec

import (
	"encoding/binary"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"pesti/exec/plan"
)

// A chooser makes decisions from fuzz bytes, two for each. After the last byte it takes the first
// choice.
type chooser struct{ data []byte }

func (c *chooser) below(n int) int {
	var b [2]byte
	c.data = c.data[copy(b[:], c.data):]
	return int(binary.LittleEndian.Uint16(b[:])) % max(n, 1)
}

// numbers are boundary values of plan fields.
var numbers = []int64{0, 1, -1, 2, 3, 5, 6, 7, 8, 12, 15, 16, 17, 31, 32, 33, 39, 40, 41, 48, 63, 64, 65, 128, 256, 258,
	4096, 65535, 65536, 1<<31 - 1, 1 << 31, 1 << 32, 1 << 40, 1e18, 1 << 62, math.MaxInt64 - 63, math.MaxInt64, math.MinInt64}

// A script is the text of a plan split into fields: words, numbers, and single other bytes.
type script struct {
	lines  [][]string
	places []place
	alike  map[string][]int    // lines by their keyword
	kinds  map[string][]string // fields by their kind
}

// A place is the position of a field that has a meaning.
type place struct{ line, at int }

var fields = regexp.MustCompile(`[A-Za-z0-9_.+-]+|(?s).`)

func newScript(text string) *script {
	s := &script{alike: map[string][]int{}, kinds: map[string][]string{"word": {"table"}}}
	for i, line := range strings.SplitAfter(text, "\n") {
		found := fields.FindAllString(line, -1)
		s.lines = append(s.lines, found)
		s.alike[keyword(found)] = append(s.alike[keyword(found)], i)
		for j, f := range found {
			if k := kindOf(f); k != "" {
				s.places = append(s.places, place{i, j})
				s.kinds[k] = append(s.kinds[k], f)
			}
		}
	}
	return s
}

func keyword(line []string) string {
	for _, f := range line {
		if f != " " {
			return f
		}
	}
	return ""
}

// kindOf returns the kind of a field. Fields of one kind can replace each other.
func kindOf(field string) string {
	switch {
	case field[0] == 'b' && strings.Trim(field[1:], "0123456789") == "":
		return "buffer"
	case strings.Trim(field, "-0123456789.e+") == "":
		return "number"
	case len(field) > 1 || field == "T" || field == "R":
		return "word"
	}
	return ""
}

// ruined returns the text with up to eight edits that the bytes select.
func (s *script) ruined(c *chooser) string {
	lines := slices.Clone(s.lines)
	for range 8 {
		if len(c.data) == 0 {
			break
		}
		op, p := c.below(10), s.places[c.below(len(s.places))]
		alike := s.alike[keyword(s.lines[p.line])]
		other := alike[c.below(len(alike))]
		switch {
		case op == 0:
			lines[p.line] = nil
		case op == 1:
			lines[p.line], lines[other] = lines[other], lines[p.line]
		case op == 2:
			lines[p.line] = slices.Concat(lines[p.line], lines[other])
		case p.at < len(lines[p.line]):
			line := slices.Clone(lines[p.line])
			line[p.at] = s.edited(line[p.at], op, lines[other], p.at, c)
			lines[p.line] = line
		}
	}
	var b strings.Builder
	waves := 0
	for _, line := range lines {
		switch keyword(line) {
		case "program":
			waves = 0
		case "wave": // later waves are renumbered, so that waves can be merged
			line = []string{"wave ", strconv.Itoa(waves), "\n"}
			waves++
		}
		for _, f := range line {
			b.WriteString(f)
		}
	}
	return b.String()
}

// edited returns the replacement of a field: another number, another field of its kind, or the
// field of a similar line.
func (s *script) edited(field string, op int, other []string, at int, c *chooser) string {
	kind := kindOf(field)
	old, err := strconv.ParseInt(field, 10, 64)
	switch {
	case kind == "":
		return field
	case op >= 8 && err == nil:
		return strconv.FormatInt([]int64{old + 1, old - 1, 2 * old, old / 2, old + 64, 3 * old}[c.below(6)], 10)
	case op >= 6 && err == nil:
		return strconv.FormatInt(numbers[c.below(len(numbers))], 10)
	case op == 5:
		return s.kinds[kind][c.below(len(s.kinds[kind]))]
	case at < len(other):
		return other[at]
	}
	return field
}

// Parts of a ruined plan that mend makes consistent again.
const (
	mendNumbers = 1 << iota // of buffers and steps; unused arena buffers are removed
	mendSizes               // sizes and strides of buffers
	mendPlaces              // offsets: no two buffers share memory, whatever their lifetimes
	mendSums                // lifetimes and all sums

	mendAll = mendNumbers | mendSizes | mendPlaces | mendSums
)

// mend makes parts of a plan consistent, so that it is more likely to load.
func mend(p *plan.Plan, what int) {
	if what&mendNumbers != 0 {
		renumber(p)
	}
	if what&mendSizes != 0 {
		resize(p)
	}
	if what&mendPlaces != 0 {
		for i := range p.Programs {
			at := int64(0)
			for j := range p.Programs[i].Buffers {
				b := &p.Programs[i].Buffers[j]
				b.Offset = at
				at += rounded(b.Size)
			}
		}
	}
	if what&mendSums != 0 {
		packed := p.Memory.Packed
		p.Memory = sums(p)
		p.Memory.Packed = packed
		p.Fusions = plan.CountFusions(p)
	}
}

// rounded returns the bytes that a buffer of n bytes takes in the arena.
func rounded(n int64) int64 { return (n + plan.ArenaAlign - 1) / plan.ArenaAlign * plan.ArenaAlign }

// touched calls see for each buffer number in a step.
func touched(st *plan.Step, see func(id *int)) {
	for i := range st.Args {
		if st.Args[i].Weight == "" {
			see(&st.Args[i].Buffer)
		}
	}
	if st.Scratch >= 0 {
		see(&st.Scratch)
	}
}

// each calls see for the steps of a program in order.
func each(g *plan.Program, see func(wave int, st *plan.Step)) {
	for w := range g.Waves {
		for s := range g.Waves[w].Steps {
			see(w, &g.Waves[w].Steps[s])
		}
	}
}

// renumber numbers buffers and steps in order of occurrence.
func renumber(p *plan.Plan) {
	shared := map[int]int{} // new numbers by old
	for i := range p.Buffers {
		shared[p.Buffers[i].ID] = i
		p.Buffers[i].ID = i
	}
	for i := range p.Programs {
		g := &p.Programs[i]
		used := map[int]bool{}
		each(g, func(_ int, st *plan.Step) { touched(st, func(id *int) { used[*id] = true }) })
		g.Buffers = slices.DeleteFunc(g.Buffers, func(b plan.Buffer) bool { return !used[b.ID] })
		ids := maps.Clone(shared)
		for j := range g.Buffers {
			ids[g.Buffers[j].ID] = len(p.Buffers) + j
			g.Buffers[j].ID = len(p.Buffers) + j
		}
		next := 0
		each(g, func(_ int, st *plan.Step) {
			st.ID = next
			next++
			touched(st, func(id *int) {
				if n, ok := ids[*id]; ok {
					*id = n
				}
			})
		})
	}
}

// resize gives each buffer the smallest size for its elements, or 0 if its formula has no value.
func resize(p *plan.Plan) {
	fit := func(b *plan.Buffer, s plan.Scope) {
		f, ok := plan.LookupFormat(b.Format)
		if !ok {
			return
		}
		elems, _ := s.Eval(b.Elems)
		if b.Size, _ = f.Size(elems); b.Each {
			b.Stride = rounded(b.Size)
			b.Size = b.Stride * int64(p.Target.Threads)
		}
	}
	for i := range p.Buffers {
		fit(&p.Buffers[i], p.Scope(nil))
	}
	for i := range p.Programs {
		g := &p.Programs[i]
		for j := range g.Buffers {
			fit(&g.Buffers[j], p.Scope(g))
		}
	}
}

// sums sets the lifetimes of buffers and returns the memory sums. It ignores overflow, which the
// verifier has to find.
func sums(p *plan.Plan) (m plan.Memory) {
	for i := range p.Weights {
		m.Weight += p.Weights[i].Size
	}
	for i := range p.Buffers {
		switch b := &p.Buffers[i]; b.Class {
		case plan.State:
			m.State += b.Size
		case plan.Table:
			m.Tables += b.Size
		default:
			m.IO += b.Size
		}
	}
	for i := range p.Programs {
		g := &p.Programs[i]
		live := make([]int64, len(g.Waves))
		waves := make([][]int, len(g.Buffers)) // waves that use each buffer, in order
		next := 0
		each(g, func(w int, st *plan.Step) {
			touched(st, func(id *int) {
				at := *id - len(p.Buffers)
				if at < 0 || at >= len(g.Buffers) {
					return
				}
				b := &g.Buffers[at]
				if waves[at] == nil {
					b.First = next
				}
				waves[at] = append(waves[at], w)
				b.Last = next + 1
			})
			next++
		})
		var unshared int64
		for j := range g.Buffers {
			b, w := &g.Buffers[j], waves[j]
			if w == nil {
				continue
			}
			unshared += rounded(b.Size)
			m.Arena = max(m.Arena, b.Offset+rounded(b.Size))
			for k := w[0]; k <= w[len(w)-1]; k++ {
				live[k] += rounded(b.Size)
				m.ArenaLowerBound = max(m.ArenaLowerBound, live[k])
			}
		}
		m.ArenaUnshared = max(m.ArenaUnshared, unshared)
	}
	return m
}
