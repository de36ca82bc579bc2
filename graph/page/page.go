// Package page writes what the passes of a compilation did as one HTML page: a column for each
// stage, in which a value can be followed from column to column.
//
// It owns the page's style and script, and the text of a plan's steps. It takes texts in which %name is a
// value and @name a weight, as graphs print them. It imports graph and exec/plan for the steps. The page
// is one file and loads nothing.
package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A Stage is a column of the page.
type Stage struct {
	Group string // stages of one group are shown and hidden together
	Name  string
	Doc   string // one line
	Text  string
	Lines string // what its lines that define values are: "nodes"
	From  int    // the earlier stage that it is a change of, −1 for none
}

var (
	//go:embed page.html
	source string
	//go:embed page.css
	style string
	//go:embed page.js
	script string

	layout = template.Must(template.New("page").Parse(source))

	// A quoted string of its own is no name, whatever stands in it.
	word = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[%@](?:"(?:[^"\\]|\\.)*"|[\w./+-]+)`)
)

// Write writes the page. The columns of the first two groups are shown at once, those of others when
// the reader asks for them. The same stages give the same bytes.
func Write(w io.Writer, title string, stages []Stage) error {
	p := page{Title: title, Style: template.CSS(style), Script: template.JS(script)}
	lines := make([]map[string]bool, len(stages))
	for i, s := range stages {
		if s.From >= i || s.From < -1 {
			return fmt.Errorf("stage %d is a change of stage %d, expected an earlier one or -1", i, s.From)
		}
		var before map[string]bool
		if s.From >= 0 {
			before = lines[s.From]
		}
		var c column
		c, lines[i] = columnOf(s, i, before)
		at := slices.IndexFunc(p.Groups, func(g group) bool { return g.Name == s.Group })
		if at < 0 {
			at = len(p.Groups)
			p.Groups = append(p.Groups, group{s.Group, at < shownGroups})
		}
		c.Shown = p.Groups[at].Shown
		if s.From >= 0 {
			c.Before = p.Columns[s.From].Values
		}
		p.Columns = append(p.Columns, c)
		a := ancestry{From: s.From}
		if s.From < 0 && i > 0 && stages[i-1].Group == s.Group { // the same values, written otherwise
			a.From = i - 1
		}
		if a.From >= 0 {
			a.Gone = successors(stages[a.From].Text, s.Text)
		}
		p.Ancestry = append(p.Ancestry, a)
	}
	return layout.Execute(w, p)
}

// shownGroups is how many groups of columns are shown at first.
const shownGroups = 2

type page struct {
	Title   string
	Style   template.CSS
	Script  template.JS
	Groups  []group
	Columns []column
	// Ancestry is what the script knows of each column.
	Ancestry []ancestry
}

// An ancestry says where the values of a column come from.
type ancestry struct {
	From int               // the column before, −1 for none
	Gone map[string]string // values that it has and this one does not, and what they became part of
}

type group struct {
	Name  string
	Shown bool
}

type column struct {
	Stage
	Number         int
	Shown          bool
	Before, Values int // lines that define values, in the stage that it is a change of and in this one
	Paragraphs     []paragraph
}

// A paragraph is lines without an empty one between them. A browser does not lay out paragraphs that are
// out of sight, and needs their height for that.
type paragraph []line

type line struct {
	Changed bool // the stage that it is a change of has no such line
	Pieces  []piece
}

// A piece is a name, or what stands between names.
type piece struct {
	Text   string
	IsName bool
	Anchor string // where the name comes first
}

// columnOf cuts the text of a stage into pieces, and returns its lines besides. Before are the lines
// of the stage that it is a change of.
func columnOf(s Stage, number int, before map[string]bool) (column, map[string]bool) {
	c := column{Stage: s, Number: number}
	lines, anchored := map[string]bool{}, map[string]bool{}
	for _, text := range strings.Split(strings.Trim(s.Text, "\n"), "\n\n") {
		var par paragraph
		for _, t := range strings.Split(text, "\n") {
			lines[t] = true
			l := line{Changed: s.From >= 0 && !before[t]}
			if strings.HasPrefix(strings.TrimLeft(t, " "), "%") {
				c.Values++
			}
			at := 0
			for _, m := range word.FindAllStringIndex(t, -1) {
				if t[m[0]] == '"' {
					continue
				}
				if at < m[0] {
					l.Pieces = append(l.Pieces, piece{Text: t[at:m[0]]})
				}
				n := piece{Text: t[m[0]:m[1]], IsName: true}
				if !anchored[n.Text] {
					anchored[n.Text] = true
					n.Anchor = n.Text
				}
				l.Pieces = append(l.Pieces, n)
				at = m[1]
			}
			if at < len(t) {
				l.Pieces = append(l.Pieces, piece{Text: t[at:]})
			}
			par = append(par, l)
		}
		c.Paragraphs = append(c.Paragraphs, par)
	}
	return c, lines
}
