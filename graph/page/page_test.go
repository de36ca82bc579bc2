package page

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var stages = []Stage{
	{"graph", "graph", "as built", "graph g (T <= 1)\n  @w : f32[2]\n\n  %x : i32[T] = input {name: \"%none @none\"}\n  %y : f32[T] = embed %x, @w\n  %z : f32[T] = add %y, %y\n\n  output %z\n", "nodes", -1},
	{"graph", "fuse", "y and z in one", "graph g (T <= 1)\n  @w : f32[2]\n\n  %x : i32[T] = input {name: \"%none @none\"}\n  %z : f32[T] = twice %x, @w\n\n  output %z\n", "nodes", 0},
	{"decode", "plan", "steps", "wave 0\n  %z = twice[T] x=%x w=gemv.f32 @w y=%\"a <b>&\\\"\"\n", "steps", -1},
	{"prefill", "plan", "steps", "wave 0\n  %z = twice[T] x=%x w=gemm.f32 @w y=%z\n", "steps", 1},
}

// digit matches the beginning of a count.
var digit = regexp.MustCompile(`^\d`)

func write(t *testing.T, title string, stages []Stage) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, title, stages); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A shownColumn is a column parsed as XML.
type shownColumn struct {
	group, text string
	hidden      bool
	anchors     []string // names with an anchor
	names       []string
	changed     []string // lines
	counts      string
}

// columns parses a page. The page must be well-formed XML, so that no name can break out of its
// element.
func columns(t *testing.T, page string) []shownColumn {
	t.Helper()
	var all []shownColumn
	d := xml.NewDecoder(strings.NewReader(page))
	ids := map[string]bool{}
	var open []xml.StartElement
	changed := false
	for {
		token, err := d.Token()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			open = append(open, e.Copy())
			attr := map[string]string{}
			for _, a := range e.Attr {
				attr[a.Name.Local] = a.Value
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "src" || a.Name.Local == "href" {
					t.Errorf("<%s> has %s=%q", e.Name.Local, a.Name.Local, a.Value)
				}
			}
			if id := attr["id"]; id != "" {
				if ids[id] {
					t.Errorf("two elements have the id %q", id)
				}
				ids[id] = true
			}
			switch e.Name.Local {
			case "section":
				all = append(all, shownColumn{group: attr["data-group"], hidden: attr["hidden"] != ""})
			case "a":
				c := &all[len(all)-1]
				if id := attr["id"]; id != "" {
					c.anchors = append(c.anchors, strings.TrimLeft(id, "0123456789"))
				}
				c.names = append(c.names, "")
			case "span":
				if changed = attr["class"] == "new"; changed {
					c := &all[len(all)-1]
					c.changed = append(c.changed, "")
				}
			}
		case xml.EndElement:
			open = open[:len(open)-1]
			changed = changed && e.Name.Local == "a"
		case xml.CharData:
			if len(all) == 0 || len(open) == 0 {
				continue
			}
			c, in := &all[len(all)-1], open[len(open)-1]
			inside := slices.ContainsFunc(open, func(e xml.StartElement) bool { return e.Name.Local == "pre" })
			if inside {
				c.text += string(e)
			}
			if in.Name.Local == "a" {
				c.names[len(c.names)-1] += string(e)
			}
			if changed {
				c.changed[len(c.changed)-1] += string(e)
			}
			if in.Name.Local == "p" && digit.MatchString(string(e)) {
				c.counts = string(e)
			}
		}
	}
}

func TestPage(t *testing.T) {
	got := columns(t, write(t, "title", stages))
	if len(got) != len(stages) {
		t.Fatalf("%d columns, want %d", len(got), len(stages))
	}
	for i, c := range got {
		if c.group != stages[i].Group || c.hidden != (stages[i].Group == "prefill") {
			t.Errorf("column %d is of group %q, hidden %v", i, c.group, c.hidden)
		}
		if squeeze(c.text) != squeeze(stages[i].Text) {
			t.Errorf("column %d reads\n%s\nwant\n%s", i, c.text, stages[i].Text)
		}
		// Every name has its anchor in every column that has the name.
		names := slices.Compact(slices.Sorted(slices.Values(c.names)))
		if anchors := slices.Sorted(slices.Values(c.anchors)); !slices.Equal(anchors, names) || len(names) < 3 {
			t.Errorf("column %d: anchors are %q, names %q", i, anchors, names)
		}
		if slices.Contains(c.names, "%none") {
			t.Errorf("column %d: what stands in a string is taken for a name", i)
		}
	}
	for i, want := range []string{"3 nodes", "3 → 2 nodes", "1 steps", "2 → 1 steps"} {
		if got[i].counts != want {
			t.Errorf("column %d says %q, want %q", i, got[i].counts, want)
		}
	}
	if len(got[0].changed)+len(got[2].changed) != 0 || fmt.Sprintf("%q", got[1].changed) != `["  %z : f32[T] = twice %x, @w\n"]` {
		t.Errorf("changed lines are %q and %q", got[0].changed, got[1].changed)
	}
	if !slices.Contains(got[2].names, `%"a <b>&\""`) {
		t.Errorf("a quoted name is not found in %q", got[2].names)
	}
}

// squeeze drops empty lines, which the page adds.
func squeeze(s string) string {
	return strings.Trim(regexp.MustCompile(`\n\n+`).ReplaceAllString(s, "\n"), "\n")
}

// The page loads nothing, and is deterministic.
func TestPageStandsAlone(t *testing.T) {
	text := write(t, "title", stages)
	if text != write(t, "title", stages) {
		t.Error("two pages differ")
	}
	rest := strings.ReplaceAll(text, `xmlns="http://www.w3.org/1999/xhtml"`, "")
	if m := regexp.MustCompile(`(?i)https?:|//[a-z]|url\(|@import|\bfetch\(|XMLHttp|<link|<img`).FindString(rest); m != "" {
		t.Errorf("the page has %q", m)
	}
}

// Names come from files and may hold anything.
func TestPageEscapes(t *testing.T) {
	evil := `</script></style><script>alert(1)</script>"'&<!--]]>`
	text := write(t, evil, []Stage{{evil, evil, evil, "  %" + fmt.Sprintf("%q", evil) + " = op\n" + evil + "\n", evil, -1}})
	columns(t, text)
	if strings.Count(text, "<script>") != 1 || strings.Count(text, "</script>") != 1 || strings.Count(text, "</style>") != 1 {
		t.Errorf("a name breaks out:\n%s", text)
	}
}

func TestPageOfNothing(t *testing.T) {
	if got := columns(t, write(t, "", nil)); len(got) != 0 {
		t.Errorf("without stages there are columns: %v", got)
	}
	if got := columns(t, write(t, "", []Stage{{Lines: "nodes", From: -1}})); len(got) != 1 || got[0].counts != "0 nodes" {
		t.Errorf("an empty stage gives %+v", got)
	}
	for from := range 2 { // the stage itself, and a later one
		if err := Write(io.Discard, "", []Stage{{From: from}, {From: -1}}); err == nil {
			t.Errorf("a stage may be derived from stage %d", from)
		}
	}
}
