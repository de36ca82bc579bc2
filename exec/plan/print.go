package plan

import (
	"crypto/sha256"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The first word of a plan, followed by the version, and the first word of its last line.
const (
	magic   = "pesti-plan"
	trailer = "end"
)

// Print returns the text form of a plan. Parse reads it back to an equal plan; equal plans print
// to equal bytes.
//
// A line is a keyword and its fields. Names are quoted only if they need it. # begins a comment.
// The last line is a digest of the text before it.
func Print(p *Plan) []byte {
	w := &printer{}
	w.Grow(sizeHint(p))
	w.linef("%s %d", magic, p.Version)
	w.head(p)
	w.weights(p.Weights)
	w.blank()
	w.linef("# Buffers of all programs.")
	w.buffers("", p.Buffers)
	for i := range p.Programs {
		w.program(&p.Programs[i])
	}
	w.blank()
	return Seal([]byte(w.String()))
}

// sizeHint returns about how many bytes the text of a plan has.
func sizeHint(p *Plan) int {
	const line = 160
	n := 30 + len(p.Weights) + len(p.Buffers)
	for i := range p.Programs {
		n += len(p.Programs[i].Buffers)
		for _, wave := range p.Programs[i].Waves {
			n += 1 + len(wave.Steps)
		}
	}
	return n * line
}

// Seal ends a text with a line that holds its digest. An older digest line is replaced.
func Seal(text []byte) []byte {
	body, _, _ := cutTrailer(string(text))
	if body != "" && !strings.HasSuffix(body, "\n") {
		body += "\n"
	}
	return []byte(body + trailer + " " + digest(body) + "\n")
}

// cutTrailer splits a text into the lines before the last one and the digest in the last one.
func cutTrailer(text string) (body, sum string, ok bool) {
	last := strings.TrimRight(text, "\n")
	at := strings.LastIndexByte(last, '\n') + 1
	sum, ok = strings.CutPrefix(last[at:], trailer+" ")
	if !ok {
		return text, "", false
	}
	return text[:at], sum, true
}

func digest(text string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

type printer struct {
	strings.Builder
}

func (w *printer) linef(format string, args ...any) {
	fmt.Fprintf(w, format, args...)
	w.blank()
}

func (w *printer) blank() { w.WriteByte('\n') }

func (w *printer) head(p *Plan) {
	m, t, mem, f := &p.Model, &p.Target, &p.Memory, &p.Fusions
	w.blank()
	w.linef("model   %s %s file=%s size=%d", quote(m.Arch), strconv.Quote(m.Name), quote(m.File), m.Size)
	w.linef("digest  directory=%s data=%s", quote(m.HeaderDigest), quote(m.WeightsDigest))
	if s := &p.Sidecar; *s != (Sidecar{}) {
		w.linef("sidecar file=%s size=%d directory=%s data=%s", quote(s.File), s.Size, quote(s.HeaderDigest), quote(s.WeightsDigest))
	}
	devices := ""
	if n := len(p.Devices); n > 0 {
		devices = fmt.Sprintf(" devices=%d", n)
	}
	w.linef("target  %s %s precision=%s kv=%s threads<=%d ctx=%d ubatch=%d sequences=%d rows=%d%s",
		quote(t.Backend), quote(t.ISA), quote(t.Precision), quote(t.KV), t.Threads, t.Ctx, t.Ubatch, t.Sequences, t.Rows, devices)
	w.linef("passes  %s", strconv.Quote(p.Passes))
	w.linef("fusions qkv=%d gated_mlp=%d attention=%d", f.QKV, f.GatedMLP, f.Attention)
	w.blank()
	tables := ""
	if mem.Tables != 0 {
		tables = ", tables " + HumanBytes(mem.Tables)
	}
	w.linef("# weight %s, packed %s, state %s%s, io %s, arena %s (bound %s, unshared %s)",
		HumanBytes(mem.Weight), HumanBytes(mem.Packed), HumanBytes(mem.State), tables, HumanBytes(mem.IO),
		HumanBytes(mem.Arena), HumanBytes(mem.ArenaLowerBound), HumanBytes(mem.ArenaUnshared))
	w.linef("memory  %s", memoryFields(mem))
	var rows [][]string
	for i := range p.Devices {
		d := &p.Devices[i]
		rows = append(rows, []string{fmt.Sprintf("device  %d %s %s threads<=%d", i, quote(d.Backend), quote(d.ISA), d.Threads), memoryFields(&d.Memory)})
	}
	w.table("", rows)
}

// memoryFields returns the sums, without tables if their sum is 0.
func memoryFields(m *Memory) string {
	var words []string
	for _, f := range m.fields() {
		if f.bytes != &m.Tables || m.Tables != 0 {
			words = append(words, fmt.Sprintf("%s=%d", f.name, *f.bytes))
		}
	}
	return strings.Join(words, " ")
}

func (w *printer) weights(weights []Weight) {
	w.blank()
	w.linef("# Tensors of the model file that the steps read.")
	var rows [][]string
	for i := range weights {
		t := &weights[i]
		row := []string{"weight @" + quote(t.Name), quote(t.Type) + dims(t.Dims), fmt.Sprintf("size=%d", t.Size)}
		if t.Layout != "" || t.Packed != 0 {
			row = append(row, fmt.Sprintf("layout=%s packed=%d", quote(t.Layout), t.Packed))
		}
		if part := t.Part.String(); part != "" {
			row = append(row, part)
		}
		if on := onDevices(t.Devices); on != "" {
			row = append(row, on)
		}
		rows = append(rows, row)
	}
	w.table("", rows)
}

func (w *printer) buffers(indent string, buffers []Buffer) {
	var rows [][]string
	for i := range buffers {
		b := &buffers[i]
		row := []string{
			"buffer b" + strconv.Itoa(b.ID), quote(string(b.Class)), quote(b.Format), quote(b.Elems),
			"size=" + digits(b.Size),
		}
		if b.Class == Arena {
			each := ""
			if b.Each {
				each = "each=" + digits(b.Stride)
			}
			row = append(row, each, "offset="+digits(b.Offset), "steps=["+digits(b.First)+","+digits(b.Last)+")")
		}
		row = append(row, quote(b.Name))
		if on := onDevice(b.Device); on != "" {
			row = append(row, on)
		}
		rows = append(rows, row)
	}
	w.table(indent, rows)
}

func (w *printer) program(g *Program) {
	w.blank()
	chunk := ""
	if g.Chunk != 0 {
		chunk = fmt.Sprintf(" chunk=%d", g.Chunk)
	}
	w.linef("program %s%s %d <= T <= %d, R <= %d", quote(g.Name), chunk, g.MinT, g.MaxT, g.MaxR)
	w.buffers("  ", g.Buffers)
	var rows [][]string // of all waves, so that their columns align
	for _, st := range g.Steps() {
		rows = append(rows, stepRow(st))
	}
	lines := align("    ", rows)
	for i := range g.Waves {
		w.linef("  wave %d", i)
		n := len(g.Waves[i].Steps)
		w.lines(lines[:n])
		lines = lines[n:]
	}
}

func stepRow(s *Step) []string {
	layer := ""
	if s.Layer != noLayer {
		layer = "layer=" + digits(s.Layer)
	}
	split := "split=" + quote(s.Split.By)
	if s.Split.Unit != 0 {
		split += "/" + digits(s.Split.Unit)
	}
	return []string{
		"step " + digits(s.ID), quote(s.Name), layer,
		quote(s.Kernel) + "[" + quote(s.Rows) + "]", split, operands(s),
	}
}

// operands returns the text of a step's arguments, with an arrow before the first that is only
// written, and of its parameters, scratch and device.
func operands(s *Step) string {
	var b strings.Builder
	sig, _ := LookupKernel(s.Kernel)
	arrow := false
	for i := range s.Args {
		a := &s.Args[i]
		if !arrow && sig != nil && sig.writesOnly(a.Role) {
			b.WriteString("-> ")
			arrow = true
		}
		if a.Buffer != noBuffer {
			writeAll(&b, quote(a.Role), "=b", digits(a.Buffer), " ")
			continue
		}
		kernel := ""
		if a.Kernel != "" {
			kernel = quote(a.Kernel)
		}
		writeAll(&b, quote(a.Role), "=", kernel, "@", quote(a.Weight), " ")
	}
	b.WriteString("{")
	for i, p := range s.Params {
		if i > 0 {
			b.WriteString(", ")
		}
		writeAll(&b, quote(p.Name), "=", literal(p.Value))
	}
	b.WriteString("}")
	if s.Scratch != noBuffer {
		writeAll(&b, " scratch=b", digits(s.Scratch))
	}
	if on := onDevice(s.Device); on != "" {
		b.WriteString(" " + on)
	}
	return b.String()
}

// digits returns n in decimal.
func digits[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func writeAll(b *strings.Builder, words ...string) {
	for _, w := range words {
		b.WriteString(w)
	}
}

// literal prints a parameter in a form that shows its kind.
func literal(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".eIN") {
			s += ".0"
		}
		return s
	}
	return strconv.Quote(fmt.Sprint(v))
}

// quote returns s, in quotes unless all its characters are bare.
func quote(s string) string {
	for i := 0; i < len(s); i++ {
		if !isBare(s[i]) {
			return strconv.Quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}

// isBare reports whether a word with the character needs no quotes. (No slash: it separates a split
// from its unit.)
func isBare(c byte) bool {
	return isLetter(c) || isDigit(c) || strings.IndexByte(".-+*:", c) >= 0
}

func dims(d []int64) string {
	parts := make([]string, len(d))
	for i, n := range d {
		parts[i] = strconv.FormatInt(n, 10)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// HumanBytes returns a number of bytes for people: "19.2 MiB".
func HumanBytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	f := float64(n)
	for i < len(units)-1 && math.Abs(f) >= 1024 {
		f /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

func (w *printer) table(indent string, rows [][]string) {
	w.lines(align(indent, rows))
}

func (w *printer) lines(lines []string) {
	for _, l := range lines {
		w.WriteString(l)
		w.blank()
	}
}

// align pads the cells of each column to the same width.
func align(indent string, rows [][]string) []string {
	var width []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], len(c))
		}
	}
	lines := make([]string, len(rows))
	for i, r := range rows {
		var b strings.Builder
		room := len(indent)
		for j := range r[:len(r)-1] {
			room += width[j] + 1
		}
		b.Grow(room + len(r[len(r)-1]))
		b.WriteString(indent)
		for j, c := range r {
			b.WriteString(c)
			if j < len(r)-1 && width[j] > 0 {
				for range width[j] - len(c) + 1 {
					b.WriteByte(' ')
				}
			}
		}
		lines[i] = b.String()
	}
	return lines
}
