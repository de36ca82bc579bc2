package draw

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode"

	"github.com/emicklei/dot"
)

const (
	fontName   = "Helvetica"
	reuseColor = "#B0573B"
)

// dot prints the picture.
func (p *picture) dot() string {
	g := dot.NewGraph(dot.Directed)
	g.ID(quoted(p.name))
	g.Attrs("fontname", fontName, "fontsize", "12", "fontcolor", "#2B3442", "label", p.label(), "labelloc", "t", "labeljust", "l",
		"bgcolor", "#FFFFFF", "pad", "0.4", "nodesep", "0.3", "ranksep", "0.42", "newrank", "true", "compound", "true",
		"style", "rounded", "rankdir", "TB", "outputorder", "edgesfirst")
	nodes := make([]dot.Node, len(p.boxes))
	placed := make([]bool, len(p.boxes))
	add := func(in *dot.Graph, i int) {
		nodes[i] = p.boxes[i].node(in)
		placed[i] = true
	}
	var frame func(in *dot.Graph, path string, clusters []cluster)
	frame = func(in *dot.Graph, path string, clusters []cluster) {
		for i, c := range clusters {
			id := fmt.Sprintf("%s.%d", path, i)
			inside := in.Subgraph(id, dot.ClusterOption{})
			inside.Attrs("id", id, "label", c.label, "labeljust", "l", "style", "rounded,filled", "color", "#C9D1DC",
				"fillcolor", "#F6F8FA", "fontname", fontName+"-Bold", "fontsize", "12", "fontcolor", "#4A5568", "margin", "14")
			switch {
			case c.label == "": // an invisible cluster that keeps its boxes together
				inside.Attrs("style", "solid", "peripheries", "0")
			case len(c.inner) > 0:
				inside.Attrs("fillcolor", "#EEF1F5")
			}
			for _, b := range c.boxes {
				add(inside, b)
			}
			frame(inside, id, c.inner)
		}
	}
	frame(g, "group", p.groups)
	for i := range p.boxes {
		if !placed[i] {
			add(g, i)
		}
	}
	for _, l := range p.links {
		e := g.Edge(nodes[l.from], nodes[l.to])
		e.Attrs("fontname", fontName, "fontsize", "8", "fontcolor", "#5B6675", "color", "#7A8699", "arrowsize", "0.6", "penwidth", "1.1")
		if len(l.labels) > 0 {
			e.Attrs("label", " "+clean(l.label())+" ")
		}
		if p.sideBySide(l) {
			e.Attrs("constraint", "false")
		}
		if l.reuse {
			e.Attrs("style", "dashed", "color", reuseColor, "penwidth", "0.9")
		}
	}
	p.rank(g, nodes)
	return sortRanks(g.String())
}

// sideBySide reports whether a link must not affect ranks, so that the blocks of a graph, which has
// no waves, are next to each other.
func (p *picture) sideBySide(l link) bool {
	a, b := &p.boxes[l.from], &p.boxes[l.to]
	return a.rank < 0 && a.layer != b.layer && a.layer != outside && b.layer != outside
}

// sortRanks sorts the lines that list the nodes of a rank, because the library prints them in the
// random order of a map.
func sortRanks(text string) string {
	lines := strings.Split(text, "\n")
	isRank := func(line string) bool { return strings.HasPrefix(line, "\t{rank=same;") }
	first := slices.IndexFunc(lines, isRank)
	if first < 0 {
		return text
	}
	end := first
	for end < len(lines) && isRank(lines[end]) {
		end++
	}
	slices.Sort(lines[first:end])
	return strings.Join(lines, "\n")
}

// rank puts every wave on its own rank, in order. It adds an invisible link between waves that no
// link connects.
func (p *picture) rank(g *dot.Graph, nodes []dot.Node) {
	type wave struct {
		program string
		rank    int
	}
	var programs []string
	var order []wave
	boxes := map[wave][]int{}
	for i := range p.boxes {
		b := &p.boxes[i]
		if b.rank < 0 {
			continue
		}
		if !slices.Contains(programs, b.program) {
			programs = append(programs, b.program)
		}
		w := wave{b.program, b.rank}
		if boxes[w] == nil {
			order = append(order, w)
		}
		boxes[w] = append(boxes[w], i)
	}
	slices.SortFunc(order, func(a, b wave) int {
		return cmp.Or(cmp.Compare(slices.Index(programs, a.program), slices.Index(programs, b.program)), cmp.Compare(a.rank, b.rank))
	})
	linked := map[[2]wave]bool{}
	for _, l := range p.links {
		a, b := &p.boxes[l.from], &p.boxes[l.to]
		linked[[2]wave{{a.program, a.rank}, {b.program, b.rank}}] = true
	}
	for i, w := range order {
		same := make([]dot.Node, len(boxes[w]))
		for j, b := range boxes[w] {
			same[j] = nodes[b]
		}
		g.AddToSameRank(fmt.Sprintf("%s wave %04d", w.program, w.rank), same...)
		if i > 0 && order[i-1].program == w.program && !linked[[2]wave{order[i-1], w}] {
			g.Edge(nodes[boxes[order[i-1]][0]], nodes[boxes[w][0]]).Attrs("style", "invis")
		}
	}
}

// label returns the title and the legend of the kinds that occur.
func (p *picture) label() dot.HTML {
	var b strings.Builder
	b.WriteString(`<table border="0" cellborder="0" cellspacing="0" cellpadding="2">`)
	for i, line := range p.title {
		size, color := 12, "#5B6675"
		if i == 0 {
			size, color = 20, "#1F2733"
		}
		row(&b, "left", size, color, i == 0, line)
	}
	b.WriteString(`<tr><td align="left"><table border="0" cellborder="1" cellspacing="6" cellpadding="4"><tr>`)
	used := map[string]bool{}
	outputs := false
	for i := range p.boxes {
		used[p.boxes[i].kind] = true
		outputs = outputs || p.boxes[i].output
	}
	for _, k := range slices.Concat(kinds, timeStyles) {
		if used[k.name] {
			fmt.Fprintf(&b, `<td bgcolor="%s" color="%s" style="rounded">%s</td>`, k.fill, k.line, legendText(k.name))
		}
	}
	if outputs {
		fmt.Fprintf(&b, `<td cellpadding="2" color="#66738A" style="rounded"><table border="1" cellborder="0" cellspacing="0" cellpadding="1" color="#66738A" style="rounded"><tr><td>%s</td></tr></table></td>`,
			legendText("output"))
	}
	if slices.ContainsFunc(p.links, func(l link) bool { return l.reuse }) {
		fmt.Fprintf(&b, `<td border="0"><font point-size="10" color="%s"><b>– – →</b></font>%s</td>`, reuseColor, legendText("  only reuse of memory forces this order"))
	}
	b.WriteString(`</tr></table></td></tr></table>`)
	return dot.HTML(b.String())
}

func legendText(s string) string {
	return `<font point-size="10" color="#2B3442">` + s + `</font>`
}

func (b *box) node(in *dot.Graph) dot.Node {
	k := styleOf(b.kind)
	var t strings.Builder
	t.WriteString(`<table border="0" cellborder="0" cellspacing="0" cellpadding="1">`)
	if b.place != "" {
		row(&t, "center", 8, k.line, false, b.place)
	}
	row(&t, "center", 11, "#1F2733", true, b.title)
	for _, l := range b.lines {
		row(&t, "center", 9, "#4A5568", false, l)
	}
	for _, w := range b.weights {
		row(&t, "center", 9, k.line, false, w.String())
	}
	for _, s := range b.stores {
		row(&t, "center", 8, "#7A8699", false, s)
	}
	t.WriteString(`</table>`)
	n := in.Node(b.id)
	n.Attrs("id", clean(b.id), "label", dot.HTML(t.String()), "shape", "box", "style", "rounded,filled",
		"fillcolor", k.fill, "color", k.line, "penwidth", "1.2", "fontname", fontName, "margin", "0.10,0.05", "tooltip", clean(b.id))
	if b.kind == stateKind {
		n.Attrs("shape", "cylinder", "style", "filled")
	}
	if b.output {
		n.Attrs("peripheries", "2")
	}
	return n
}

// row writes a line of text as a row of a table.
func row(b *strings.Builder, align string, size int, color string, bold bool, text string) {
	text = html.EscapeString(clip(clean(text)))
	if bold {
		text = "<b>" + text + "</b>"
	}
	fmt.Fprintf(b, `<tr><td align="%s"><font point-size="%d" color="%s">%s</font></td></tr>`, align, size, color, text)
}

// quoted writes an ID of the dot language (https://graphviz.org/doc/info/lang.html), which escapes
// only quotes. A final backslash would escape the closing quote.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `/`).Replace(clean(s)) + `"`
}

// clean replaces what cannot be shown: names come from model files and may hold any bytes.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// clip shortens text that would make a box too wide.
func clip(s string) string {
	const most = 160
	r := []rune(s)
	if len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
