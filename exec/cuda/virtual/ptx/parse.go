package ptx

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Parse parses a module. An error has the line.
func Parse(text []byte) (*Module, error) {
	tokens, err := lex(string(text))
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, module: &Module{}, names: []map[string]*name{{}}}
	for p.peek().kind != 0 {
		if err := p.top(); err != nil {
			return nil, err
		}
	}
	if p.module.Version == "" || p.module.Target == "" {
		return nil, Errorf(1, "no .version and .target: this is not PTX")
	}
	return p.module, nil
}

// A name in scope is a register or a variable.
type name struct {
	register bool
	class    Class
	index    int
	kind     string // of a register: "b32"
	variable Variable
	// Declared outside of kernels. In shared memory, each kernel that uses it has its own copy.
	everywhere bool
}

type parser struct {
	tokens []token
	at     int
	module *Module
	kernel *Kernel
	names  []map[string]*name   // the innermost scope last
	labels map[string]int       // of the kernel, to positions in its code
	tables map[string][]Operand // .branchtargets
	places map[string]uint64    // addresses in the kernel's shared memory of variables declared outside
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != 0 {
		p.at++
	}
	return t
}

func (p *parser) accept(text string) bool {
	if p.peek().text == text && p.peek().kind != 's' && p.peek().kind != 0 {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(text string) error {
	t := p.next()
	if t.text != text || t.kind == 0 {
		return Errorf(t.line, "%q where %q is expected", t.text, text)
	}
	return nil
}

// integer reads an unsigned number.
func (p *parser) integer() (int, error) {
	t := p.next()
	v, err := strconv.ParseInt(strings.TrimSuffix(t.text, "U"), 0, 32)
	if err != nil || t.kind != 'n' || v < 0 {
		return 0, Errorf(t.line, "%q where a number is expected", t.text)
	}
	return int(v), nil
}

// skipLine skips the rest of a line.
func (p *parser) skipLine() {
	line := p.peek().line
	for p.peek().kind != 0 && p.peek().line == line {
		p.next()
	}
}

func (p *parser) top() error {
	t := p.peek()
	switch t.text {
	case ".version":
		p.next()
		p.module.Version = p.next().text
	case ".target":
		p.next()
		p.module.Target = p.next().text
		for p.accept(",") {
			p.next()
		}
	case ".address_size":
		p.next()
		if n, err := p.integer(); err != nil || n != 64 {
			return Errorf(t.line, ".address_size is not 64")
		}
	case ".file":
		p.skipLine()
	case ".pragma":
		p.skipLine()
	case ".visible", ".extern", ".weak", ".global", ".const", ".shared", ".entry":
		return p.definition()
	default:
		return Errorf(t.line, "%s is not supported here", t.text)
	}
	return nil
}

func (p *parser) definition() error {
	extern := false
	for {
		switch {
		case p.accept(".visible"), p.accept(".weak"):
		case p.accept(".extern"):
			extern = true
		case p.accept(".entry"):
			return p.entry()
		default:
			v, err := p.variable(extern)
			if err != nil {
				return err
			}
			if v.Space == Local || v.Space == Param {
				return Errorf(v.Line, "%s is neither in .global or .const nor in .shared", v.Name)
			}
			if v.Space == Global {
				p.module.Variables = append(p.module.Variables, v)
			}
			return p.expect(";")
		}
	}
}

// sizes has the sizes of types in bytes.
var sizes = map[string]int{
	"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
	"b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4,
	"b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16,
}

// Size returns the size of a type in bytes, or 0 if it is not a type.
func Size(kind string) int { return sizes[kind] }

var spaces = map[string]Space{".global": Global, ".const": Global, ".shared": Shared, ".local": Local, ".param": Param}

// variable reads ".shared .align 4 .b8 name[128]", and "= {…}" in .global and .const, and adds it to the
// scope.
func (p *parser) variable(extern bool) (Variable, error) {
	t := p.next()
	v := Variable{Line: t.line, Space: spaces[t.text], extern: extern}
	if v.Space == NoSpace {
		return v, Errorf(t.line, "%s is not a state space", t.text)
	}
	element, many := 0, 1
	for element == 0 {
		t = p.next()
		kind, ok := strings.CutPrefix(t.text, ".")
		switch {
		case t.text == ".align":
			n, err := p.integer()
			if err != nil {
				return v, err
			}
			if n < 1 || n&(n-1) != 0 || n > 1<<16 {
				return v, Errorf(t.line, ".align %d", n)
			}
			v.Align = n
		case t.text == ".v2":
			many = 2
		case t.text == ".v4":
			many = 4
		case t.text == ".ptr": // ".u64 .ptr .global .align 8 name": follows the type; see below
		case ok && sizes[kind] > 0:
			element = sizes[kind]
		default:
			return v, Errorf(t.line, "%q where a type is expected", t.text)
		}
	}
	for p.peek().text == ".ptr" || p.peek().text == ".global" || p.peek().text == ".const" || p.peek().text == ".shared" || p.peek().text == ".align" {
		if p.next().text == ".align" { // of what a pointer points to
			if _, err := p.integer(); err != nil {
				return v, err
			}
		}
	}
	t = p.next()
	if t.kind != 'w' {
		return v, Errorf(t.line, "%q where a name is expected", t.text)
	}
	v.Name = t.text
	v.Align = max(v.Align, element)
	v.Size = element * many
	if p.accept("[") {
		n := 0
		if p.peek().text != "]" {
			var err error
			if n, err = p.integer(); err != nil {
				return v, err
			}
		}
		if err := p.expect("]"); err != nil {
			return v, err
		}
		if n > (1<<30)/v.Size {
			return v, Errorf(t.line, "%s has %d elements", v.Name, n)
		}
		v.Size *= n
	}
	if v.Size == 0 && !v.extern {
		return v, Errorf(t.line, "%s has no size", v.Name)
	}
	if v.extern && v.Space != Shared {
		return v, Errorf(t.line, "%s is extern but not in .shared", v.Name)
	}
	if p.accept("=") {
		if v.Space != Global {
			return v, Errorf(t.line, "%s has an initial value but is not in .global or .const", v.Name)
		}
		if err := p.values(&v, element); err != nil {
			return v, err
		}
	}
	return v, p.declare(v.Name, v.Line, &name{variable: v, everywhere: len(p.names) == 1})
}

// values reads the initial value of a variable.
func (p *parser) values(v *Variable, element int) error {
	list := p.accept("{")
	for {
		o, err := p.number(element)
		if err != nil {
			return err
		}
		v.Data = binary.LittleEndian.AppendUint64(v.Data, o.Value)
		v.Data = v.Data[:len(v.Data)-8+element]
		if !list || !p.accept(",") {
			break
		}
	}
	if len(v.Data) > v.Size {
		return Errorf(v.Line, "%s has %d bytes but its initial value has %d", v.Name, v.Size, len(v.Data))
	}
	v.Data = append(v.Data, make([]byte, v.Size-len(v.Data))...)
	if list {
		return p.expect("}")
	}
	return nil
}

func (p *parser) declare(text string, line int, n *name) error {
	scope := p.names[len(p.names)-1]
	if _, ok := scope[text]; ok {
		return Errorf(line, "%s is declared twice", text)
	}
	scope[text] = n
	return nil
}

func (p *parser) find(text string) (*name, bool) {
	for _, scope := range slices.Backward(p.names) {
		if n, ok := scope[text]; ok {
			return n, true
		}
	}
	return nil, false
}

func (p *parser) entry() error {
	t := p.next()
	k := &Kernel{Name: t.text, Line: t.line, SharedAlign: 16}
	if slices.ContainsFunc(p.module.Kernels, func(other *Kernel) bool { return other.Name == k.Name }) {
		return Errorf(t.line, "kernel %s is defined twice", k.Name)
	}
	p.kernel = k
	p.labels, p.tables, p.places = map[string]int{}, map[string][]Operand{}, map[string]uint64{}
	p.names = append(p.names, map[string]*name{})
	if p.accept("(") {
		for p.peek().text != ")" {
			v, err := p.variable(false)
			if err != nil {
				return err
			}
			if v.Space != Param {
				return Errorf(v.Line, "%s is not a parameter", v.Name)
			}
			v.Address = uint64(roundUp(k.ParamBytes, v.Align))
			k.ParamBytes = int(v.Address) + v.Size
			p.names[len(p.names)-1][v.Name] = &name{variable: v}
			k.Params = append(k.Params, v)
			if !p.accept(",") {
				break
			}
		}
		if err := p.expect(")"); err != nil {
			return err
		}
	}
	for p.peek().text != "{" {
		if err := p.tuning(); err != nil {
			return err
		}
	}
	p.next()
	if err := p.body(); err != nil {
		return err
	}
	p.names = p.names[:len(p.names)-1]
	if err := p.resolve(); err != nil {
		return err
	}
	p.module.Kernels = append(p.module.Kernels, k)
	return nil
}

// tuning reads ".maxntid 256, 1, 1" and the like.
func (p *parser) tuning() error {
	t := p.next()
	switch t.text {
	case ".maxntid", ".reqntid":
		threads := 1
		for {
			n, err := p.integer()
			if err != nil {
				return err
			}
			threads *= max(n, 1)
			if !p.accept(",") {
				break
			}
		}
		p.kernel.MaxThreads = threads
	case ".minnctapersm", ".maxnreg":
		_, err := p.integer()
		return err
	case ".pragma":
		p.skipLine()
	default:
		return Errorf(t.line, "%s is not known before a kernel's body", t.text)
	}
	return nil
}

func roundUp(n, align int) int { return (n + align - 1) &^ (align - 1) }

// body reads up to the matching closing brace.
func (p *parser) body() error {
	p.names = append(p.names, map[string]*name{})
	for {
		t := p.peek()
		switch {
		case t.kind == 0:
			return Errorf(t.line, "kernel %s is unterminated", p.kernel.Name)
		case p.accept("}"):
			p.names = p.names[:len(p.names)-1]
			return nil
		case p.accept("{"):
			if len(p.names) > 64 {
				return Errorf(t.line, "more than 60 nested braces")
			}
			if err := p.body(); err != nil {
				return err
			}
		case p.accept(";"):
		case t.text == ".reg":
			p.next()
			if err := p.registers(); err != nil {
				return err
			}
		case t.text == ".shared" || t.text == ".local":
			if err := p.placed(); err != nil {
				return err
			}
		case t.text == ".loc" || t.text == ".pragma" || t.text == ".file":
			p.skipLine()
		case t.kind == 'w' && p.tokens[p.at+1].text == ":":
			p.at += 2
			if _, ok := p.labels[t.text]; ok {
				return Errorf(t.line, "label %s is defined twice", t.text)
			}
			if p.accept(".branchtargets") {
				if err := p.targets(t.text); err != nil {
					return err
				}
				continue
			}
			p.labels[t.text] = len(p.kernel.Code)
		default:
			if err := p.instruction(); err != nil {
				return err
			}
		}
	}
}

// placed reads a variable in shared or local memory and gives it an address. Its name is valid in the whole
// kernel.
func (p *parser) placed() error {
	v, err := p.variable(false)
	if err != nil {
		return err
	}
	if v.Space == Local {
		v.Address = uint64(roundUp(p.kernel.LocalBytes, v.Align))
		p.kernel.LocalBytes = int(v.Address) + v.Size
	} else {
		v.Address = p.share(v)
	}
	if p.kernel.LocalBytes > 1<<20 || p.kernel.SharedBytes > 1<<20 {
		return Errorf(v.Line, "%s does not fit", v.Name)
	}
	p.names[len(p.names)-1][v.Name] = &name{variable: v}
	return p.expect(";")
}

// registers reads ".b32 %r<9>;" or ".f32 a, b;" after ".reg".
func (p *parser) registers() error {
	t := p.next()
	kind := strings.TrimPrefix(t.text, ".")
	class := Word
	switch {
	case kind == "pred":
		class = Pred
	case sizes[kind] == 8:
		class = Long
	case sizes[kind] == 0 || sizes[kind] > 8:
		return Errorf(t.line, "registers of type %q are not supported", t.text)
	}
	add := func(text string, line int) error {
		n := &name{register: true, class: class, index: p.kernel.Registers[class], kind: kind}
		p.kernel.Registers[class]++
		return p.declare(text, line, n)
	}
	for {
		t = p.next()
		if t.kind != 'w' {
			return Errorf(t.line, "%q where a register is expected", t.text)
		}
		if p.accept("<") {
			n, err := p.integer()
			if err != nil {
				return err
			}
			if n > 1<<16 {
				return Errorf(t.line, "%d registers", n)
			}
			for i := range n {
				if err := add(t.text+strconv.Itoa(i), t.line); err != nil {
					return err
				}
			}
			if err := p.expect(">"); err != nil {
				return err
			}
		} else if err := add(t.text, t.line); err != nil {
			return err
		}
		if !p.accept(",") {
			return p.expect(";")
		}
	}
}

// targets reads the labels after ".branchtargets".
func (p *parser) targets(table string) error {
	for {
		t := p.next()
		if t.kind != 'w' {
			return Errorf(t.line, "%q where a label is expected", t.text)
		}
		p.tables[table] = append(p.tables[table], Operand{Kind: Label, Name: t.text, Index: -1})
		if !p.accept(",") {
			return p.expect(";")
		}
	}
}

func (p *parser) instruction() error {
	in := Instr{Line: p.peek().line}
	if p.accept("@") {
		o, err := p.operand()
		if err != nil {
			return err
		}
		if o.Kind != Register || o.Class != Pred {
			return Errorf(in.Line, "the guard is not a predicate")
		}
		in.Guard = &o
	}
	t := p.next()
	if t.kind != 'w' || t.text[0] == '%' {
		return Errorf(t.line, "%q where an instruction is expected", t.text)
	}
	parts := strings.Split(t.text, ".")
	in.Op, in.Suffix = parts[0], parts[1:]
	if in.Op == "" {
		return Errorf(t.line, "%s is not supported here", t.text)
	}
	in.Args = make([]Operand, 0, 4)
	for !p.accept(";") {
		if len(in.Args) > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		o, err := p.operand()
		if err != nil {
			return err
		}
		in.Args = append(in.Args, o)
	}
	p.kernel.Code = append(p.kernel.Code, in)
	return nil
}

func (p *parser) operand() (Operand, error) {
	t := p.peek()
	switch {
	case p.accept("!"):
		o, err := p.operand()
		o.Not = !o.Not
		return o, err
	case p.accept("{"):
		o := Operand{Kind: Vector}
		for {
			part, err := p.operand()
			if err != nil {
				return o, err
			}
			o.Parts = append(o.Parts, part)
			if len(o.Parts) > 16 {
				return o, Errorf(t.line, "a vector of more than 16")
			}
			if !p.accept(",") {
				return o, p.expect("}")
			}
		}
	case p.accept("["):
		o, err := p.address()
		if err != nil {
			return o, err
		}
		return o, p.expect("]")
	case t.kind == 'n' || t.text == "-" || t.text == "+":
		return p.number(8)
	case t.kind != 'w':
		return Operand{}, Errorf(t.line, "%q where an operand is expected", t.text)
	}
	p.next()
	return p.named(t)
}

// named returns the operand for a word.
func (p *parser) named(t token) (Operand, error) {
	if t.text == "_" {
		return Operand{Kind: Sink}, nil
	}
	if t.text == "WARP_SZ" {
		return Operand{Kind: Immediate, Value: 32}, nil
	}
	n, ok := p.find(t.text)
	switch {
	case ok && n.register:
		o := Operand{Kind: Register, Class: n.class, Index: n.index, Type: n.kind}
		if p.accept("|") {
			second, err := p.operand()
			if err != nil {
				return o, err
			}
			o.Parts = []Operand{second}
		}
		return o, nil
	case ok:
		o := Operand{Kind: Symbol}
		p.refer(&o, n)
		offset, err := p.offset()
		o.Value += offset
		return o, err
	case t.text[0] == '%':
		return Operand{Kind: Special, Name: t.text}, nil
	}
	return Operand{Kind: Label, Name: t.text, Index: -1}, nil
}

// refer makes an operand refer to a variable. Extern arrays in shared memory begin after all other
// variables. That address is known only at the end of the kernel, where resolve adds it.
func (p *parser) refer(o *Operand, n *name) {
	v := n.variable
	o.Name, o.Space, o.Value, o.extern = v.Name, v.Space, v.Address, v.extern
	if v.extern {
		p.kernel.SharedAlign = max(p.kernel.SharedAlign, v.Align)
	} else if n.everywhere && v.Space == Shared {
		at, ok := p.places[v.Name]
		if !ok {
			at = p.share(v)
			p.places[v.Name] = at
		}
		o.Value = at
	}
}

// share allocates a variable in the kernel's shared memory.
func (p *parser) share(v Variable) uint64 {
	k := p.kernel
	k.SharedAlign = max(k.SharedAlign, v.Align)
	at := roundUp(k.SharedBytes, v.Align)
	k.SharedBytes = at + v.Size
	return uint64(at)
}

// offset reads "+4", "+-4" or "-4", if there is one.
func (p *parser) offset() (uint64, error) {
	if t := p.peek().text; t != "+" && t != "-" {
		return 0, nil
	}
	p.accept("+")
	o, err := p.number(8)
	return o.Value, err
}

// address reads the text between brackets.
func (p *parser) address() (Operand, error) {
	t := p.peek()
	o := Operand{Kind: Address, Index: -1}
	if t.kind == 'n' {
		n, err := p.number(8)
		o.Value = n.Value
		return o, err
	}
	p.next()
	n, ok := p.find(t.text)
	switch {
	case ok && n.register && n.class != Pred:
		o.Class, o.Index = n.class, n.index
	case ok && !n.register:
		p.refer(&o, n)
	default:
		return o, Errorf(t.line, "%q is not an address", t.text)
	}
	offset, err := p.offset()
	o.Value += offset
	return o, err
}

// number reads a signed integer or a float. size is the size of its type, which is needed for decimal
// fractions.
func (p *parser) number(size int) (Operand, error) {
	negative := p.accept("-")
	if !negative {
		p.accept("+")
	}
	t := p.next()
	o := Operand{Kind: Immediate}
	bad := func() error { return Errorf(t.line, "%q where a number is expected", t.text) }
	if t.kind != 'n' {
		return o, bad()
	}
	var err error
	lower := strings.ToLower(t.text)
	switch {
	case strings.HasPrefix(lower, "0f") && len(lower) == 10:
		o.Float, o.Bits = true, 32
		o.Value, err = strconv.ParseUint(lower[2:], 16, 32)
		if negative {
			o.Value ^= 1 << 31
		}
	case strings.HasPrefix(lower, "0d") && len(lower) == 18:
		o.Float, o.Bits = true, 64
		o.Value, err = strconv.ParseUint(lower[2:], 16, 64)
		if negative {
			o.Value ^= 1 << 63
		}
	case strings.Contains(lower, ".") && !strings.HasPrefix(lower, "0x"):
		var f float64
		o.Float, o.Bits = true, 64
		f, err = strconv.ParseFloat(lower, 64)
		if negative {
			f = -f
		}
		o.Value = math.Float64bits(f)
		if size == 4 {
			o.Bits, o.Value = 32, uint64(math.Float32bits(float32(f)))
		}
	default:
		o.Value, err = strconv.ParseUint(strings.TrimSuffix(lower, "u"), 0, 64)
		if negative {
			o.Value = -o.Value
		}
	}
	if err != nil {
		return o, bad()
	}
	return o, nil
}

// resolve sets the positions of labels and the addresses of extern arrays.
func (p *parser) resolve() error {
	dynamic := uint64(roundUp(p.kernel.SharedBytes, p.kernel.SharedAlign))
	place := func(o *Operand, line int) error {
		at, ok := p.labels[o.Name]
		if !ok {
			return Errorf(line, "%s is not declared", o.Name)
		}
		o.Index = at
		return nil
	}
	var fix func(o *Operand, line int) error
	fix = func(o *Operand, line int) error {
		switch o.Kind {
		case Label:
			table, ok := p.tables[o.Name]
			if !ok {
				return place(o, line)
			}
			*o = Operand{Kind: Vector, Name: o.Name, Parts: slices.Clone(table)}
			for i := range o.Parts { // each is a label, not a table
				if err := place(&o.Parts[i], line); err != nil {
					return err
				}
			}
			return nil
		case Symbol, Address:
			if o.extern {
				o.Value += dynamic
			}
		}
		for i := range o.Parts {
			if err := fix(&o.Parts[i], line); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range p.kernel.Code {
		in := &p.kernel.Code[i]
		for j := range in.Args {
			if err := fix(&in.Args[j], in.Line); err != nil {
				return err
			}
		}
	}
	p.kernel.SharedBytes = int(dynamic)
	if dynamic > 1<<20 {
		return Errorf(p.kernel.Line, "%d bytes of shared memory", dynamic)
	}
	return nil
}
