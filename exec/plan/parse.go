package plan

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrNotSealed reports a text whose last line is not its digest.
var ErrNotSealed = errors.New("the plan was cut off or changed; if you edited it, verify and seal it")

// Parse reads the text form of a plan. It refuses a newer format and a text whose digest is not
// that of its last line; errors name the line, what was found and what was expected. It checks
// syntax alone; Verify checks the contents.
func Parse(text []byte) (*Plan, error) {
	body, sum, sealed := cutTrailer(string(text))
	first, rest, _ := strings.Cut(body, "\n")
	version, err := parseVersion(first)
	if err != nil {
		return nil, err
	}
	if !sealed {
		return nil, fmt.Errorf("the last line is not %q and a digest: %w", trailer, ErrNotSealed)
	}
	if string(Seal(text)) != string(text) {
		return nil, fmt.Errorf("digest is %s, the last line says %q: %w", digest(body), clip(sum), ErrNotSealed)
	}
	r := reader{plan: &Plan{Version: version}, seen: make([]bool, len(keywords))}
	for number := 2; rest != ""; number++ {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if err := r.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	for i, k := range keywords {
		if k.once && !r.seen[i] {
			return nil, fmt.Errorf("no line %q, expected one", k.name)
		}
	}
	if len(r.plan.Devices) != r.devices {
		return nil, fmt.Errorf("%d lines \"device\", expected %d as the target line says", len(r.plan.Devices), r.devices)
	}
	return r.plan, nil
}

// IsPlan reports whether a file is a plan, well-formed or not, by its first bytes.
func IsPlan(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }

// HeadBackend returns the backend of a plan, well-formed or not, by its first lines: "cuda". It is "" if they have
// no target, or are of another file.
func HeadBackend(head []byte) string {
	if !IsPlan(head) {
		return ""
	}
	for line := range strings.Lines(string(head)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "target" {
			return words[1]
		}
	}
	return ""
}

func parseVersion(line string) (int, error) {
	s, ok := strings.CutPrefix(line, magic+" ")
	if !ok {
		return 0, fmt.Errorf("line 1: found %q, expected %q and a version: not a plan", clip(line), magic)
	}
	v, err := strconv.Atoi(s)
	if err != nil || v < 1 {
		return 0, fmt.Errorf("line 1: found version %q, expected %d", clip(s), Version)
	}
	if v > Version {
		return 0, fmt.Errorf("plan format %d, this program reads %d; compile the model again or use a newer program", v, Version)
	}
	if v < Version {
		return 0, fmt.Errorf("plan format %d of an older program, this one reads %d; compile the model again", v, Version)
	}
	return v, nil
}

// keywords lists the kinds of lines. A kind marked once occurs exactly once in every plan.
var keywords = []struct {
	name string
	once bool
	read func(*reader, *scanner)
}{
	{"model", true, (*reader).model},
	{"digest", true, (*reader).digest},
	{"sidecar", false, (*reader).sidecar},
	{"target", true, (*reader).target},
	{"passes", true, (*reader).passes},
	{"fusions", true, (*reader).fusions},
	{"memory", true, (*reader).memory},
	{"device", false, (*reader).device},
	{"weight", false, (*reader).weight},
	{"buffer", false, (*reader).buffer},
	{"program", false, (*reader).program},
	{"wave", false, (*reader).wave},
	{"step", false, (*reader).step},
}

type reader struct {
	plan    *Plan
	seen    []bool // by keyword
	devices int    // number in the target line, 0 without
}

func (r *reader) line(line string) error {
	s := &scanner{rest: line}
	if s.done() {
		return s.err
	}
	word := s.bare()
	for i, k := range keywords {
		if k.name != word {
			continue
		}
		if k.once && r.seen[i] {
			return fmt.Errorf("found a second line %q, expected one", k.name)
		}
		r.seen[i] = true
		k.read(r, s)
		if !s.done() {
			s.fail("the end of the line")
		}
		return s.err
	}
	names := make([]string, len(keywords))
	for i, k := range keywords {
		names[i] = k.name
	}
	return fmt.Errorf("found %q, expected one of %s", clip(line), strings.Join(names, ", "))
}

// last returns the program that the current line belongs to, nil before the first.
func (r *reader) last() *Program {
	if n := len(r.plan.Programs); n > 0 {
		return &r.plan.Programs[n-1]
	}
	return nil
}

func (r *reader) model(s *scanner) {
	r.plan.Model.Arch = s.word("an architecture")
	r.plan.Model.Name = s.word("a model name")
	r.plan.Model.File = s.key("file=").word("a path")
	r.plan.Model.Size = s.key("size=").integer()
}

func (r *reader) digest(s *scanner) {
	r.plan.Model.HeaderDigest = s.key("directory=").word("a digest")
	r.plan.Model.WeightsDigest = s.key("data=").word("a digest")
}

// sidecar parses a line that occurs at most once.
func (r *reader) sidecar(s *scanner) {
	c := &r.plan.Sidecar
	if *c != (Sidecar{}) {
		s.fail("one line for a sidecar at most")
	}
	c.File = s.key("file=").word("a path")
	c.Size = s.key("size=").integer()
	c.HeaderDigest = s.key("directory=").word("a digest")
	c.WeightsDigest = s.key("data=").word("a digest")
}

func (r *reader) target(s *scanner) {
	t := &r.plan.Target
	t.Backend = s.word("a backend")
	t.ISA = s.word("an instruction set")
	t.Precision = s.key("precision=").word("a precision")
	t.KV = s.key("kv=").word("a cache format")
	t.Threads = s.key("threads<=").small()
	t.Ctx = s.key("ctx=").integer()
	t.Ubatch = s.key("ubatch=").integer()
	t.Sequences = s.key("sequences=").integer()
	t.Rows = s.key("rows=").integer()
	if s.maybe("devices=") {
		r.devices = s.small()
	}
}

func (r *reader) passes(s *scanner) { r.plan.Passes = s.word("a list of passes") }

func (r *reader) fusions(s *scanner) {
	r.plan.Fusions = Fusions{
		QKV:       s.key("qkv=").small(),
		GatedMLP:  s.key("gated_mlp=").small(),
		Attention: s.key("attention=").small(),
	}
}

func (r *reader) memory(s *scanner) { s.memory(&r.plan.Memory) }

func (r *reader) device(s *scanner) {
	if n := s.small(); s.err == nil && n != len(r.plan.Devices) {
		s.err = fmt.Errorf("found device %d, expected %d: devices are numbered from 0", n, len(r.plan.Devices))
	}
	d := Device{Backend: s.word("a backend"), ISA: s.word("an instruction set")}
	d.Threads = s.key("threads<=").small()
	s.memory(&d.Memory)
	r.plan.Devices = append(r.plan.Devices, d)
}

// memory parses the sums of bytes; the sum of tables is optional.
func (s *scanner) memory(m *Memory) {
	for _, f := range m.fields() {
		if key := f.name + "="; f.bytes != &m.Tables {
			*f.bytes = s.key(key).integer()
		} else if s.maybe(key) {
			*f.bytes = s.integer()
		}
	}
}

func (r *reader) weight(s *scanner) {
	w := Weight{Name: s.key("@").word("a tensor name"), Type: s.word("a tensor type")}
	w.Dims = s.dims()
	w.Size = s.key("size=").integer()
	if s.maybe("layout=") {
		w.Layout = s.word("a layout")
		w.Packed = s.key("packed=").integer()
	}
	w.Part = s.part()
	if s.maybe("on ") {
		for {
			w.Devices = append(w.Devices, s.small())
			if !s.maybe(",") {
				break
			}
		}
	}
	r.plan.Weights = append(r.plan.Weights, w)
}

func (r *reader) buffer(s *scanner) {
	b := Buffer{
		ID:     s.buffer(),
		Class:  Class(s.word("a memory class")),
		Format: s.word("an element format"),
		Elems:  s.word("a number of elements"),
		Size:   s.key("size=").integer(),
	}
	if b.Class == Arena {
		if b.Each = s.maybe("each="); b.Each {
			b.Stride = s.integer()
		}
		b.Offset = s.key("offset=").integer()
		b.First = s.key("steps=[").small()
		b.Last = s.key(",").small()
		s.key(")")
	}
	b.Name = s.word("a name")
	b.Device = s.on()
	if g := r.last(); g != nil {
		g.Buffers = append(g.Buffers, b)
	} else {
		r.plan.Buffers = append(r.plan.Buffers, b)
	}
}

func (r *reader) program(s *scanner) {
	g := Program{Name: s.word("a program name")}
	if s.maybe("chunk=") {
		g.Chunk = s.integer()
	}
	g.MinT = s.integer()
	g.MaxT = s.key("<=").key("T").key("<=").integer()
	g.MaxR = s.key(",").key("R").key("<=").integer()
	r.plan.Programs = append(r.plan.Programs, g)
}

func (r *reader) wave(s *scanner) {
	g := r.last()
	if g == nil {
		s.fail("a program before the first wave")
		return
	}
	if n := s.small(); s.err == nil && n != len(g.Waves) {
		s.err = fmt.Errorf("found wave %d, expected %d: waves are numbered from 0", n, len(g.Waves))
	}
	g.Waves = append(g.Waves, Wave{})
}

func (r *reader) step(s *scanner) {
	g := r.last()
	if g == nil || len(g.Waves) == 0 {
		s.fail("a wave before the first step")
		return
	}
	st := Step{ID: s.small(), Name: s.word("a step name"), Layer: noLayer, Scratch: noBuffer}
	if s.maybe("layer=") {
		st.Layer = s.small()
	}
	st.Kernel = s.word("a kernel")
	st.Rows = s.key("[").word("T or R")
	st.Split.By = s.key("]").key("split=").word("a split")
	if s.maybe("/") {
		st.Split.Unit = s.integer()
	}
	for !s.maybe("{") && s.err == nil {
		s.maybe("->")
		st.Args = append(st.Args, s.arg())
	}
	for !s.maybe("}") && s.err == nil {
		if len(st.Params) > 0 {
			s.key(",")
		}
		st.Params = append(st.Params, Param{s.word("a parameter"), s.key("=").literal()})
	}
	if s.maybe("scratch=") {
		st.Scratch = s.buffer()
	}
	st.Device = s.on()
	w := &g.Waves[len(g.Waves)-1]
	w.Steps = append(w.Steps, st)
}

// arg parses role=b3, role=@weight or role=kernel@weight.
func (s *scanner) arg() Arg {
	a := Arg{Role: s.word("an operand or {"), Buffer: noBuffer}
	s.key("=")
	if s.maybe("@") {
		a.Weight = s.word("a tensor name")
		return a
	}
	rest := s.rest
	if w := s.word("a buffer or a weight"); s.maybe("@") {
		a.Kernel, a.Weight = w, s.word("a tensor name")
		return a
	}
	s.rest = rest
	a.Buffer = s.buffer()
	return a
}

// A scanner reads the fields of one line and keeps the first error.
type scanner struct {
	rest string
	err  error
}

func (s *scanner) fail(expected string) {
	if s.err != nil {
		return
	}
	s.rest = strings.TrimLeft(s.rest, " \t")
	found := strconv.Quote(clip(s.rest))
	if s.rest == "" {
		found = "the end of the line"
	}
	s.err = fmt.Errorf("found %s, expected %s", found, expected)
}

// done reports whether the rest of the line is blank or a comment.
func (s *scanner) done() bool {
	s.rest = strings.TrimLeft(s.rest, " \t")
	return s.err != nil || s.rest == "" || s.rest[0] == '#'
}

// maybe consumes the literal if it comes next, and reports whether it did.
func (s *scanner) maybe(literal string) bool {
	if s.done() {
		return false
	}
	rest, ok := strings.CutPrefix(s.rest, literal)
	if ok {
		s.rest = rest
	}
	return ok
}

// key consumes the literal, which must come next.
func (s *scanner) key(literal string) *scanner {
	if !s.maybe(literal) {
		s.fail(literal)
	}
	return s
}

func (s *scanner) bare() string {
	if s.done() {
		return ""
	}
	n := 0
	for n < len(s.rest) && isBare(s.rest[n]) {
		n++
	}
	w := s.rest[:n]
	s.rest = s.rest[n:]
	return w
}

// word parses a name, bare or quoted.
func (s *scanner) word(expected string) string {
	if !s.done() && s.rest[0] == '"' {
		q, err := strconv.QuotedPrefix(s.rest)
		if err == nil {
			var w string
			if w, err = strconv.Unquote(q); err == nil {
				s.rest = s.rest[len(q):]
				return w
			}
		}
		s.fail(expected)
		return ""
	}
	w := s.bare()
	if w == "" {
		s.fail(expected)
	}
	return w
}

func (s *scanner) integer() int64 { return s.number(64) }

// small parses a number that fits in an int.
func (s *scanner) small() int { return int(s.number(strconv.IntSize)) }

func (s *scanner) number(bits int) int64 {
	rest := s.rest
	v, err := strconv.ParseInt(s.bare(), 10, bits)
	if err != nil {
		s.rest = rest
		s.fail(fmt.Sprintf("an integer of %d bits", bits))
	}
	return v
}

// buffer parses a buffer's number: b12.
func (s *scanner) buffer() int {
	if !s.maybe("b") {
		s.fail("a buffer, b and its number")
	}
	return s.small()
}

// literal parses the value of a parameter: 12, 1e-06, "silu".
func (s *scanner) literal() any {
	if !s.done() && s.rest[0] == '"' {
		return s.word("a value")
	}
	rest := s.rest
	w := s.bare()
	if v, err := strconv.ParseInt(w, 10, 64); err == nil {
		return v
	}
	v, err := strconv.ParseFloat(w, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		s.rest = rest
		s.fail(fmt.Sprintf("a number between -%g and %g", math.MaxFloat64, math.MaxFloat64))
	case err != nil:
		s.rest = rest
		s.fail("an integer, a number or a quoted word")
	}
	return v
}

// clip shortens text that an error quotes.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
