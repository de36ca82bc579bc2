// Package passtest runs the golden files of passes: text in, pass, text out, and the values of
// both sides. The tests of graph/pass and of lower use it. It imports graph, graph/pass and ops.
package passtest

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/graph"
	"pesti/graph/pass"
	"pesti/ops"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Golden runs every testdata/*.txt of the calling package. A file is named after its pass, or has a
// line "# pass: NAME". It holds the graph before the pass, the graph after it, and the notes. Both
// graphs are verified and interpreted; their outputs agree within tolerance of the row's largest
// value, which is 1e-5 for passes that keep the arithmetic.
func Golden(t *testing.T, passes []pass.Pass, tolerance map[string]float64) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	covered := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head, rest, _ := strings.Cut(string(text), "-- in --\n")
			in, want, _ := strings.Cut(rest, "-- out --\n")
			passName, before := read(t, file)
			covered[passName] = true
			after := before.Clone()
			notes, err := pass.Run(after, []pass.Pass{find(t, passes, passName)}, pass.Options{Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			got.WriteString(graph.Print(after))
			got.WriteString("-- notes --\n")
			for _, n := range notes {
				fmt.Fprintln(&got, noteLine(n))
			}
			if *update {
				out := head + "-- in --\n" + in + "-- out --\n" + got.String()
				if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got.String() != want {
				t.Errorf("the result differs from %s; if on purpose, go test -run Golden -update in its package writes it anew. Got:\n%s\nwant:\n%s", file, got.String(), want)
			}
			tol := tolerance[passName]
			if tol == 0 {
				tol = 1e-5
			}
			if err := SameOutputs(before, after, 1, tol); err != nil {
				t.Error(err)
			}
		})
	}
	for _, p := range passes {
		if !covered[p.Name] && !*update {
			t.Errorf("pass %s has no golden file: write testdata/%s.txt with a graph, as docs/adding.md describes", p.Name, p.Name)
		}
	}
}

// Unknown is an attribute that no op has and no pass knows.
const Unknown = "unheard_of"

// UnknownAttributes adds an attribute that no pass knows to one node at a time of each golden
// file's graph. After the pass some node must still have it; a fusion that would have replaced the
// node must decline and name the attribute.
func UnknownAttributes(t *testing.T, passes []pass.Pass) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		name, before := read(t, file)
		p := find(t, passes, name)
		run := func(node int) (*graph.Graph, *graph.Node, []pass.Note, error) {
			g := before.Clone()
			n := g.Nodes[node]
			if n.Attr == nil {
				n.Attr = graph.Attrs{}
			}
			n.Attr[Unknown] = 1.0
			// No op has the attribute, so that a pass which makes a new node with it returns an error.
			notes, err := pass.Run(g, []pass.Pass{p}, pass.Options{})
			return g, n, notes, err
		}
		plain := before.Clone()
		nodes := slices.Clone(plain.Nodes)
		if _, err := pass.Run(plain, []pass.Pass{p}, pass.Options{}); err != nil {
			t.Fatal(err)
		}
		for i := range nodes {
			if p.Name == "dce" {
				continue // dead nodes may have any attribute
			}
			g, n, notes, err := run(i)
			if !slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool { return n.Attr[Unknown] != nil }) {
				t.Errorf("%s: the attribute of %s (%s) is lost: the pass has to ask Unchecked, or to use Fuse", file, n.Name(), n.Op.Name)
			}
			if err != nil && strings.Contains(err.Error(), ".part") {
				t.Errorf("%s: %s (%s) is computed in parts, whatever its attribute means: %v", file, n.Name(), n.Op.Name, err)
			}
			named := func(note pass.Note) bool { return !note.Applied && strings.Contains(note.Why, Unknown) }
			if replaced := !slices.Contains(plain.Nodes, nodes[i]); replaced && strings.HasPrefix(p.Name, "fuse_") && !slices.ContainsFunc(notes, named) {
				t.Errorf("%s: no note names the attribute of %s (%s)", file, n.Name(), n.Op.Name)
			}
		}
	}
}

// read returns the pass of a golden file and the graph before it.
func read(t *testing.T, file string) (passName string, before *graph.Graph) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), "-- in --\n")
	if !ok {
		t.Fatalf("%s: found no line -- in --, expected one between a comment and a graph", file)
	}
	in, _, _ := strings.Cut(rest, "-- out --\n")
	passName = strings.TrimSuffix(filepath.Base(file), ".txt")
	if _, after, ok := strings.Cut(head, "# pass: "); ok {
		passName, _, _ = strings.Cut(after, "\n")
	}
	if before, err = graph.Parse(in, ops.Lookup); err != nil {
		t.Fatalf("%s: after -- in --: %v", file, err)
	}
	if err := graph.Verify(before); err != nil {
		t.Fatalf("%s: before the pass: %v", file, err)
	}
	return passName, before
}

func noteLine(n pass.Note) string {
	if n.Applied {
		return n.Place + ": applied"
	}
	return n.Place + ": " + n.Why
}

func find(t *testing.T, passes []pass.Pass, name string) pass.Pass {
	for _, p := range passes {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("found pass %q, expected a row of the table of passes; a golden file is called NAME.txt, or begins with a line # pass: NAME", name)
	return pass.Pass{}
}

// SameOutputs interprets two graphs on the same random weights, as one step of T tokens and as
// steps of one token each, and compares all outputs of a within tol of each row's largest value.
func SameOutputs(a, b *graph.Graph, seed uint64, tol float64) error {
	t := int(a.Max(graph.T))
	va, err := evaluate(a, seed, t)
	if err != nil {
		return fmt.Errorf("before: %w", err)
	}
	for _, chunk := range []int{t, 1} {
		vb, err := evaluate(b, seed, chunk)
		if err != nil {
			return fmt.Errorf("after: %w", err)
		}
		for _, v := range a.Outputs {
			if err := sameRows(va[v.Name], vb[v.Name], tol); err != nil {
				return fmt.Errorf("%s in chunks of %d: %w", v.Name, chunk, err)
			}
		}
	}
	return nil
}

// rows are the values of one output: a row for each token, or for each row of logits.
type rows [][]float32

func sameRows(a, b rows, tol float64) error {
	if len(a) != len(b) || len(a) == 0 {
		return fmt.Errorf("%d rows, expected %d", len(b), len(a))
	}
	for r := range a {
		largest := 0.0
		for _, x := range a[r] {
			largest = max(largest, math.Abs(float64(x)))
		}
		for i := range a[r] {
			if d := math.Abs(float64(a[r][i]) - float64(b[r][i])); !(d <= tol*largest) {
				return fmt.Errorf("row %d element %d is %g, expected %g", r, i, b[r][i], a[r][i])
			}
		}
	}
	return nil
}

// evaluate feeds the graph's largest number of tokens in chunks and collects the outputs, with
// logits of all rows.
func evaluate(g *graph.Graph, seed uint64, chunk int) (map[string]rows, error) {
	total := int(g.Max(graph.T))
	vocab := 8
	weights := func(w *graph.Value) ([]float32, error) {
		n := 1
		h := uint64(14695981039346656037)
		for _, c := range []byte(w.Name) {
			h = (h ^ uint64(c)) * 1099511628211
		}
		for _, d := range w.Type.Shape {
			n *= int(d.N)
		}
		rng := rand.New(rand.NewPCG(seed, h))
		data := make([]float32, n)
		for i := range data {
			data[i] = float32(rng.NormFloat64())
		}
		return data, nil
	}
	env := &ops.Env{Weights: weights}
	rng := rand.New(rand.NewPCG(seed, 0))
	var tokens, pos, seq []int32
	for i := range total {
		tokens, pos, seq = append(tokens, int32(rng.IntN(vocab))), append(pos, int32(i)), append(seq, 0)
	}
	out := map[string]rows{}
	for at := 0; at < total; at += chunk {
		end := min(at+chunk, total)
		var wanted []int32
		for i := range end - at {
			wanted = append(wanted, int32(i))
		}
		env.Inputs = map[string][]int32{}
		for name, in := range map[string][]int32{"tokens": tokens[at:end], "pos": pos[at:end], "seq": seq[at:end], "rows": wanted} {
			if g.Value(name) != nil {
				env.Inputs[name] = in
			}
		}
		values, err := ops.Eval(g, env)
		if err != nil {
			return nil, err
		}
		for _, v := range g.Outputs {
			x := values[v.Name]
			width := len(x.F32) / x.Shape[0]
			for r := range x.Shape[0] {
				out[v.Name] = append(out[v.Name], x.F32[r*width:(r+1)*width])
			}
		}
	}
	return out, nil
}

// OrderMatters checks that each constraint is needed: for the graph in
// testdata/order/BEFORE_AFTER.txt, the two passes give different ops in the two orders. The file
// lists the ops of both orders in the lines "# ops: " and "# reversed: ".
func OrderMatters(t *testing.T, passes []pass.Pass, constraints []pass.Order) {
	for _, c := range constraints {
		file := orderFile(c)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%s before %s: no graph shows what the order is good for: write %s with a comment line and a graph: %v", c.Before, c.After, file, err)
			continue
		}
		if !strings.HasPrefix(string(text), "#") {
			t.Errorf("%s: found a file without a comment, expected a first line # with the reason for the order", file)
			continue
		}
		body := string(text)
		if i := strings.Index(body, "\ngraph "); i >= 0 {
			body = body[i+1:]
		}
		before, after := find(t, passes, c.Before), find(t, passes, c.After)
		ordered, reversed := opsAfter(t, file, body, before, after), opsAfter(t, file, body, after, before)
		if ordered == reversed {
			t.Errorf("%s: both orders give the ops %s", file, ordered)
		}
		head, _, _ := strings.Cut(string(text), "\n# ops: ")
		head, _, _ = strings.Cut(head, "\ngraph ")
		want := head + "\n# ops: " + ordered + "\n# reversed: " + reversed + "\n" + body
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if string(text) != want {
			t.Errorf("%s differs; if on purpose, go test -run OrderMatters -update in its package writes it anew. Got\n# ops: %s\n# reversed: %s", file, ordered, reversed)
		}
	}
}

// OrderFiles checks that each file of OrderMatters belongs to a row of an order.
func OrderFiles(t *testing.T, constraints []pass.Order) {
	files, err := filepath.Glob(filepath.Join("testdata", "order", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !slices.ContainsFunc(constraints, func(c pass.Order) bool { return orderFile(c) == file }) {
			t.Errorf("%s belongs to no row of an order, expected a row for these passes, or no file", file)
		}
	}
}

func orderFile(c pass.Order) string {
	return filepath.Join("testdata", "order", c.Before+"_"+c.After+".txt")
}

// opsAfter runs passes on a graph and returns the ops of its nodes.
func opsAfter(t *testing.T, file, text string, passes ...pass.Pass) string {
	g, err := graph.Parse(text, ops.Lookup)
	if err == nil {
		err = graph.Verify(g)
	}
	if err == nil {
		_, err = pass.Run(g, passes, pass.Options{Verify: true})
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var names []string
	for _, n := range g.Nodes {
		if n.Op != ops.Input && n.Op != ops.State {
			names = append(names, n.Op.Name)
		}
	}
	return strings.Join(names, " ")
}

// Order checks a table of passes against its constraints: some run of Before comes before some run
// of After, and every constraint has a reason.
func Order(t *testing.T, passes []pass.Pass, constraints []pass.Order) {
	first, last := map[string]int{}, map[string]int{}
	for i, p := range passes {
		if p.Doc == "" {
			t.Errorf("pass %s has no Doc, expected one line for the page of compile --dump", p.Name)
		}
		if _, ok := first[p.Name]; !ok {
			first[p.Name] = i
		}
		last[p.Name] = i
	}
	for _, c := range constraints {
		before, ok1 := first[c.Before]
		after, ok2 := last[c.After]
		switch {
		case !ok1 || !ok2:
			t.Errorf("constraint %s < %s names a pass that is not in the table", c.Before, c.After)
		case before >= after:
			t.Errorf("%s has to run before %s: %s", c.Before, c.After, c.Why)
		case c.Why == "":
			t.Errorf("constraint %s < %s has no reason", c.Before, c.After)
		}
	}
}
