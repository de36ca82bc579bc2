// Package page writes the stages of a compilation as one HTML page, with a column for each stage.
// The reader can follow a value from column to column.
//
// It contains the page's style and script, and the text of a plan's steps. Its inputs are texts in
// which %name is a value and @name a weight, as graphs print them. It imports graph and exec/plan
// for the steps. The page is one file and loads no other.
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
	From  int    // index of the earlier stage that this one modifies, −1 for none
}

var (
	//go:embed page.html
	source string
	//go:embed page.css
	style string
	//go:embed page.js
	script string

	layout = template.Must(template.New("page").Parse(source))

	// A quoted string that does not follow % or @ is no name, whatever it contains.
	word = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[%@](?:"(?:[^"\\]|\\.)*"|[\w./+-]+)`)
)

// Write writes the page. The columns of the first two groups are shown at once, those of others when
// the reader asks for them. The same stages give the same bytes.
func Write(w io.Writer, title string, stages []Stage) error {
	p := page{Title: title, Style: template.CSS(style), Script: template.JS(script)}
	lines := make([]map[string]bool, len(stages))
	for i, s := range stages {
		if s.From >= i || s.From < -1 {
			return fmt.Errorf("stage %d has From %d, expected an earlier stage or -1", i, s.From)
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
		if s.From < 0 && i > 0 && stages[i-1].Group == s.Group { // the same values in another notation
			a.From = i - 1
		}
		if a.From >= 0 {
			a.Gone = successors(stages[a.From].Text, s.Text)
		}
		p.Ancestry = append(p.Ancestry, a)
	}
	return layout.Execute(w, p)
}

// shownGroups is the number of groups of columns that are shown at first.
const shownGroups = 2

type page struct {
	Title   string
	Style   template.CSS
	Script  template.JS
	Groups  []group
	Columns []column
	// Ancestry is the script's data about each column.
	Ancestry []ancestry
}

// An ancestry relates the values of a column to an earlier column.
type ancestry struct {
	From int               // the earlier column, −1 for none
	Gone map[string]string // values that only the earlier column has, with the values that they became part of
}

type group struct {
	Name  string
	Shown bool
}

type column struct {
	Stage
	Number         int
	Shown          bool
	Before, Values int // numbers of lines that define values, in stage From and in this one
	Paragraphs     []paragraph
}

// A paragraph is lines without an empty one between them. A browser skips the layout of paragraphs
// that are out of sight, for which it needs their height.
type paragraph []line

type line struct {
	Changed bool // stage From has no such line
	Pieces  []piece
}

// A piece is a name, or the text between names.
type piece struct {
	Text   string
	IsName bool
	Anchor string // ID of the name's first occurrence
}

// columnOf cuts the text of a stage into pieces, and also returns the set of its lines. before
// holds the lines of stage From.
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
