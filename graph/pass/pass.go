// Package pass rewrites graphs.
//
// It contains the pass driver, which lowering uses too, the table of graph passes, the table of
// their ordering constraints, and one file for each pass. It imports graph and ops. Graph passes do
// not depend on a file format, target or precision; the lowering passes in package lower do.
//
// # How to add a pass
//
//  1. A file named after the pass, with its function and, as its comment, the pass's purpose. At
//     each place that it examines, it calls Applied, or Declined with the reason; compile --explain
//     prints these on standard error.
//  2. A row in the table Graph, at its place, with a Doc of one line; a row in GraphOrder for each
//     pass that must run before or after it, with the reason; and testdata/order/BEFORE_AFTER.txt
//     with a comment line and a graph that demonstrates the reason. A pass that knows the target,
//     the devices or the precision goes into loweringPasses and LoweringOrder of lower/passes.go
//     instead, and its files into lower/testdata.
//  3. testdata/NAME.txt: a comment line on what the file tests, a line "-- in --", and a graph.
//     Further files are called NAME_what.txt and begin with a line "# pass: NAME". Package graph
//     documents the grammar of graphs. The graphs have at least one place where the pass applies,
//     and one where it declines or has nothing to do. The first command below writes the rest;
//     read it before you commit it.
//  4. For a graph pass, if no recipe in graph/graphtest/recipes.go draws its pattern, add one, as
//     gated_mlp and qkv are: TestPassesKeepMeaning does not test a pattern that is never drawn.
//
// Then run, for a lowering pass with ./lower in place of ./graph/pass in the first command,
//
//	go test ./graph/pass -run 'Golden|OrderMatters' -update
//	go test ./cmd/pesti -run 'Help|Explain' -update
//	go test ./graph/pass ./lower
//	go test ./conformance -run 'TestPasses$|ExactAgainstOracle'
//	make golden
//
// The second command writes the lists of passes in the help and in compile --explain. The third
// runs the pass in any allowed order and switched off, the fourth compares whole models with and
// without it, and the last updates plans and pictures, whose changes you should read.
//
// Traps:
//   - Range over slices.Clone(g.Nodes): Insert and Remove change the list.
//   - A fusion may remove a value only if a Matcher allows it (By, User, Inner): the value has one use and is no output.
//   - A Matcher sees only the changes that it makes itself (Fuse); Apply puts them into the list.
//   - An attribute that the pass does not know changes what a node means. Fuse declines by itself; a
//     pass that rewrites nodes in another way asks Unchecked. TestUnknownAttributes tries each node.
//   - Keep the name of a result that remains. Dumps and the oracle find values by their names.
//   - Keep operands before their uses, and the writes of a state before its reads; Options.Verify,
//     which tests set, finds what you break.
//   - Keep the arithmetic. The golden files are compared within 1e-5 of a row; a pass that rounds
//     more depends on the precision, belongs in package lower, and has its tolerance, with the
//     reason, in TestGolden of lower/passes_test.go. For a pass that changes no bit, a test calls
//     passtest.SameOutputs with the tolerance 0.
package pass

import (
	"fmt"
	"slices"
	"strings"

	"pesti/graph"
)

// A Pass is one row of a table: a function that rewrites a whole graph.
type Pass struct {
	Name     string
	Doc      string // one line
	Run      func(c *Context, g *graph.Graph) error
	Required bool // cannot be switched off
}

// Graph is the table of graph passes, in the order in which they run. They are the same for
// every target and precision; the result is the fused graph.
func Graph() []Pass {
	return []Pass{
		Fold(),
		{Name: "canonicalize", Doc: "order the operands of commutative ops", Run: canonicalize},
		CSE(),
		DCE(),
		{Name: "sink_rows", Doc: "compute the tail only for the rows of logits", Run: sinkRows},
		{Name: "fuse_qkv", Doc: "q, k and v projections with their biases in one op", Run: fuseQKV},
		{Name: "fuse_gated_mlp", Doc: "gate, up and activation in one op", Run: fuseGatedMLP},
		{Name: "fuse_attention", Doc: "norms, RoPE, cache, scores, softmax and values in one op", Run: fuseAttention},
		CSE(),
		DCE(),
	}
}

// Fold returns the pass fold, which also runs before look-ups are split.
func Fold() Pass {
	return Pass{Name: "fold", Doc: "fold constant factors into embeddings and into each other", Run: fold}
}

// CSE returns the pass for common subexpressions. Lowering runs it again on its own nodes.
func CSE() Pass { return Pass{Name: "cse", Doc: "share equal computations", Run: cse} }

// DCE returns the pass for dead code elimination. Lowering runs it again on its own nodes.
func DCE() Pass {
	return Pass{Name: "dce", Doc: "drop computations that nothing uses", Run: dce}
}

// An Order says that one pass has to run before another, and why.
type Order struct{ Before, After, Why string }

// GraphOrder are the constraints on the table of graph passes. Any order keeps the meaning of the
// graph; the constraints are needed for the best result.
func GraphOrder() []Order {
	return []Order{
		{"fold", "cse", "scales folded into a look-up make equal look-ups equal nodes"},
		{"canonicalize", "cse", "a + b and b + a are shared only in one order of operands"},
		{"dce", "sink_rows", "a dead use of a value's other rows would hold it back"},
		{"dce", "fuse_qkv", "a dead use of a projection would keep it from fusing"},
	}
}

// A Note records what a pass did or declined to do at one place, for --explain.
type Note struct {
	Pass    string
	Place   string // name of the value that the pattern computes
	Applied bool
	Why     string // reason, if not applied
}

// A Context is the argument with which a pass records its notes.
type Context struct {
	Notes []Note
	pass  string
}

// Applied records that the running pass rewrote the pattern that computes place.
func (c *Context) Applied(place string) {
	c.Notes = append(c.Notes, Note{Pass: c.pass, Place: place, Applied: true})
}

// Declined records why the running pass left the pattern that computes place alone.
func (c *Context) Declined(place, format string, args ...any) {
	c.Notes = append(c.Notes, Note{Pass: c.pass, Place: place, Why: fmt.Sprintf(format, args...)})
}

// Options configure Run.
type Options struct {
	Off    Set  // passes not to run
	Verify bool // verify the graph after every pass
	// After is called after each pass that changed the graph, with its number in the list.
	After func(number int, name string, g *graph.Graph)
}

// Run runs passes on g in the order of the list and returns their notes.
func Run(g *graph.Graph, passes []Pass, o Options) ([]Note, error) {
	c := &Context{}
	before := ""
	if o.After != nil {
		before = graph.Print(g)
	}
	for i, p := range passes {
		if o.Off.has(p) {
			continue
		}
		c.pass = p.Name
		if err := p.Run(c, g); err != nil {
			return nil, fmt.Errorf("pass %s: %w", p.Name, err)
		}
		g.Renumber()
		if o.Verify {
			if err := graph.Verify(g); err != nil {
				return nil, fmt.Errorf("after pass %s: %w", p.Name, err)
			}
		}
		if o.After != nil {
			if after := graph.Print(g); after != before {
				o.After(i, p.Name, g)
				before = after
			}
		}
	}
	return c.Notes, nil
}

// A Set names passes that are switched off. The zero Set is empty.
type Set struct {
	all   bool
	names []string
}

// Has reports whether a pass is switched off.
func (s Set) Has(name string) bool { return s.all || slices.Contains(s.names, name) }

func (s Set) has(p Pass) bool { return !p.Required && s.Has(p.Name) }

// ParseSet reads a --passes list: "" (all run), "none", or names with a minus sign separated by
// commas: "-fuse_gated_mlp,-cse". passes holds the rows of all tables, since one list applies to all.
func ParseSet(list string, passes []Pass) (Set, error) {
	switch list {
	case "":
		return Set{}, nil
	case "none":
		return Set{all: true}, nil
	}
	var s Set
	for _, item := range strings.Split(list, ",") {
		name, ok := strings.CutPrefix(item, "-")
		i := slices.IndexFunc(passes, func(p Pass) bool { return p.Name == name })
		switch {
		case !ok || i < 0:
			return Set{}, fmt.Errorf("pass list %q: found %q, expected none or a list of %s", list, item, known(passes))
		case passes[i].Required:
			return Set{}, fmt.Errorf("pass list %q: pass %s is required and cannot be switched off", list, name)
		}
		s.names = append(s.names, name)
	}
	return s, nil
}

// known lists the valid items of a --passes list.
func known(passes []Pass) string {
	var names []string
	for _, p := range passes {
		if name := "-" + p.Name; !p.Required && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
