package graph

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// deviceWord precedes the number of a node's device, which is printed unless it is 0.
const deviceWord = "on"

// maxDevice bounds device numbers. It far exceeds what a machine has.
const maxDevice = 1<<16 - 1

// Print returns the text form of g, which Parse reads back into an equal graph: the head with the
// bounds, the weights, the nodes in execution order and the outputs. The nodes of one block
// ("blk.3.…") form a group with aligned columns.
func Print(g *Graph) string {
	var b strings.Builder
	fmt.Fprintf(&b, "graph %s (", quoted(g.Name))
	for i, bound := range g.Bounds {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s <= %d", bound.Sym, bound.Max)
	}
	b.WriteString(")\n")
	width := 0
	for _, w := range g.Weights {
		width = max(width, len(w.String()))
	}
	for _, w := range g.Weights {
		fmt.Fprintf(&b, "  %-*s : %v", width, w, w.Type)
		if w.Part != nil {
			fmt.Fprintf(&b, " = %v", w.Part)
		}
		b.WriteString("\n")
	}
	for nodes := g.Nodes; len(nodes) > 0; {
		n := 1
		for n < len(nodes) && block(nodes[n]) == block(nodes[0]) {
			n++
		}
		b.WriteString("\n")
		printGroup(&b, nodes[:n])
		nodes = nodes[n:]
	}
	if len(g.Outputs) > 0 {
		fmt.Fprintf(&b, "\n  output %s\n", list(g.Outputs))
	}
	return b.String()
}

// block returns the block in a node's name: "blk.3", or "".
func block(n *Node) string {
	part := strings.SplitN(n.Name(), ".", 3)
	if len(part) == 3 && part[0] == "blk" {
		return part[0] + "." + part[1]
	}
	return ""
}

// printGroup prints nodes with their columns aligned. Nodes of several results are too wide to
// align with the rest.
func printGroup(w io.Writer, nodes []*Node) {
	name, typ := 0, 0
	for _, n := range nodes {
		if len(n.Out) == 1 {
			name = max(name, len(n.Out[0].String()))
			typ = max(typ, len(n.Out[0].Type.String()))
		}
	}
	for _, n := range nodes {
		types := make([]string, len(n.Out))
		for i, v := range n.Out {
			types[i] = v.Type.String()
		}
		line := fmt.Sprintf("  %-*s : %-*s = %s %s", name, list(n.Out), typ, strings.Join(types, ", "), n.Op.Name, list(n.In))
		if len(n.Attr) > 0 {
			line = strings.TrimRight(line, " ") + " " + n.Attr.String()
		}
		if n.Device != 0 {
			line = fmt.Sprintf("%s %s %d", strings.TrimRight(line, " "), deviceWord, n.Device)
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

func list(values []*Value) string {
	s := make([]string, len(values))
	for i, v := range values {
		s[i] = v.String()
	}
	return strings.Join(s, ", ")
}

// quoted returns a name in the text form: bare if it parses as one word, else quoted.
func quoted(name string) string {
	for i := range len(name) {
		if !wordByte(name[i]) {
			return strconv.Quote(name)
		}
	}
	if name == "" {
		return `""`
	}
	return name
}

// wordByte reports whether c may occur in a bare name or in a number.
func wordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '_' || c == '.' || c == '-' || c == '+' || c == '/'
}
