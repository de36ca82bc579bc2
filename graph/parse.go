package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Parse reads the text form that Print writes. lookup finds ops by name. Errors tell line and
// column, what was found and what was expected. Parse checks the syntax, and that names are defined
// before their use. Verify checks the graph.
func Parse(text string, lookup func(name string) (*Op, bool)) (*Graph, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, lookup: lookup, g: &Graph{}, values: make(map[string]*Value)}
	p.graph()
	if p.err != nil {
		return nil, p.err
	}
	p.g.number(func(v *Value, id int) { v.ID = id })
	return p.g, nil
}

// A parser keeps its first error. After an error it sees only the end of the text.
type parser struct {
	tokens []token
	lookup func(string) (*Op, bool)
	g      *Graph
	values map[string]*Value // by printed name, %x or @x
	err    error
}

func (p *parser) fail(t token, format string, args ...any) {
	if p.err != nil {
		return
	}
	p.err = fmt.Errorf("%d:%d: %w", t.line, t.col, fmt.Errorf(format, args...))
	p.tokens = p.tokens[len(p.tokens)-1:]
}

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) next() token {
	t := p.tokens[0]
	if len(p.tokens) > 1 {
		p.tokens = p.tokens[1:]
	}
	return t
}

// accept consumes the next token if it has a kind.
func (p *parser) accept(kind byte) bool {
	if p.peek().kind != kind {
		return false
	}
	p.next()
	return true
}

// expect consumes a token of a kind. Errors call it what.
func (p *parser) expect(kind byte, what string) token {
	t := p.peek()
	if t.kind != kind {
		p.fail(t, "found %v, expected %s", t, what)
		return t
	}
	return p.next()
}

// name consumes a word or a quoted string.
func (p *parser) name(what string) token {
	if t := p.peek(); t.kind == '"' {
		return p.next()
	}
	return p.expect('w', what)
}

func (p *parser) graph() {
	p.accept('\n')
	if t := p.name("the word graph"); t.text != "graph" {
		p.fail(t, "found %v, expected the word graph", t)
	}
	p.g.Name = p.name("the graph's name").text
	p.expect('(', `"(" and the bounds`)
	for p.peek().kind == 'w' {
		sym := p.sym(p.next())
		p.expect('<', `"<="`)
		p.g.Bounds = append(p.g.Bounds, Bound{sym, p.int("a bound")})
		if !p.accept(',') {
			break
		}
	}
	p.expect(')', `")"`)
	for p.err == nil && !p.accept(0) {
		p.expect('\n', "the end of the line")
		switch t := p.peek(); {
		case t.kind == '@':
			p.weight()
		case t.kind == '%':
			p.node()
		case t.kind == 'w' && t.text == "output":
			p.next()
			p.outputs()
		case t.kind != 0:
			p.fail(t, "found %v, expected @weight, %%value or output", t)
		}
	}
}

func (p *parser) sym(t token) Sym {
	s := Sym(t.text)
	if !slices.Contains([]Sym{T, S, R, C}, s) {
		p.fail(t, "found %v, expected one of the symbols T, S, R, C", t)
	}
	return s
}

func (p *parser) int(what string) int64 {
	t := p.expect('w', what)
	n, err := strconv.ParseInt(t.text, 10, 64)
	if err != nil {
		p.fail(t, "found %v, expected %s, an integer", t, what)
	}
	return n
}

// define parses the name of a new value.
func (p *parser) define() *Value {
	sigil := p.next()
	v := &Value{Name: p.name("a name").text}
	key := string(sigil.kind) + v.Name
	if p.values[key] != nil {
		p.fail(sigil, "found a second definition of %s%s, expected unique names", sigil.text, quoted(v.Name))
	}
	p.values[key] = v
	return v
}

// weight parses "@a : type", followed by "= columns of name[896, 4864] from 2560" for a part of a
// tensor.
func (p *parser) weight() {
	w := p.define()
	p.expect(':', `":" and the type`)
	w.Type = p.typ()
	if p.accept('=') {
		w.Part = p.part(w.Type.DType)
	}
	p.g.Weights = append(p.g.Weights, w)
}

// node parses "%a, %b : type, type = op operands {attributes} on 1".
func (p *parser) node() {
	n := &Node{Attr: Attrs{}}
	for {
		if t := p.peek(); t.kind != '%' {
			p.fail(t, "found %v, expected %%name of a result", t)
			return
		}
		v := p.define()
		v.Def, v.Index = n, len(n.Out)
		n.Out = append(n.Out, v)
		if !p.accept(',') {
			break
		}
	}
	p.expect(':', `":" and the types`)
	for i, v := range n.Out {
		if i > 0 {
			p.expect(',', fmt.Sprintf("a type for each of %d results", len(n.Out)))
		}
		v.Type = p.typ()
	}
	p.expect('=', `"=" and an op`)
	t := p.expect('w', "an op")
	op, ok := p.lookup(t.text)
	if !ok {
		p.fail(t, "found %v, expected the name of an op", t)
		return
	}
	n.Op = op
	if t := p.peek(); t.kind == '%' || t.kind == '@' || t.kind == 'w' && t.text != deviceWord {
		n.In = append(n.In, p.operand(n))
		for p.accept(',') {
			n.In = append(n.In, p.operand(n))
		}
	}
	if p.accept('{') {
		p.attrs(n.Attr)
	}
	if t := p.peek(); t.kind == 'w' && t.text == deviceWord {
		p.next()
		n.Device = p.device()
	}
	p.g.Nodes = append(p.g.Nodes, n)
}

func (p *parser) device() int {
	t := p.peek()
	n := p.int("the number of a device")
	if n < 0 || n > maxDevice {
		p.fail(t, "found %v, expected the number of a device, 0 to %d", t, maxDevice)
		return 0
	}
	return int(n)
}

// operand parses a value, or _ for an absent one. user is the node with the operand, whose own
// results cannot be operands; nil for an output.
func (p *parser) operand(user *Node) *Value {
	t := p.next()
	if t.kind == 'w' && t.text == "_" && user != nil {
		return nil
	}
	if t.kind != '%' && t.kind != '@' {
		p.fail(t, "found %v, expected %%value, @weight or _", t)
		return nil
	}
	name := p.name("a name").text
	v := p.values[string(t.kind)+name]
	if v == nil || v.Def != nil && v.Def == user {
		p.fail(t, "found %s%s, expected a value that is defined above", t.text, quoted(name))
	}
	return v
}

func (p *parser) attrs(a Attrs) {
	for {
		name := p.name("an attribute")
		if _, dup := a[name.text]; dup {
			p.fail(name, "found attribute %v twice, expected it once", name)
		}
		p.expect(':', `":" and a value`)
		a[name.text] = p.literal()
		if !p.accept(',') {
			break
		}
	}
	p.expect('}', `"}"`)
}

func (p *parser) literal() any {
	t := p.name("a number, a string, true or false")
	if t.kind == '"' {
		return t.text
	}
	if t.text == "true" || t.text == "false" {
		return t.text == "true"
	}
	if n, err := strconv.ParseInt(t.text, 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(t.text, 64)
	if errors.Is(err, strconv.ErrRange) {
		p.fail(t, "found %v, expected a number between -%g and %g", t, math.MaxFloat64, math.MaxFloat64)
	} else if err != nil {
		p.fail(t, "found %v, expected a number, a string, true or false", t)
	}
	return f
}

// typ parses "f32[T, 896]".
func (p *parser) typ() Type {
	return Type{DType(p.expect('w', "an element type").text), p.dims()}
}

// dims parses "[T, 896]".
func (p *parser) dims() (shape []Dim) {
	p.expect('[', `"[" and the dims`)
	for p.peek().kind == 'w' {
		d := p.peek()
		if n, err := strconv.ParseInt(d.text, 10, 64); err == nil {
			p.next()
			shape = append(shape, N(n))
		} else {
			shape = append(shape, Of(p.sym(p.next())))
		}
		if !p.accept(',') {
			break
		}
	}
	p.expect(']', `"]"`)
	return shape
}

func (p *parser) outputs() {
	for {
		p.g.Outputs = append(p.g.Outputs, p.operand(nil))
		if !p.accept(',') {
			break
		}
	}
}
