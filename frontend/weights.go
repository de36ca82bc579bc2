package frontend

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/graph"
)

// Tensors outside the blocks.
const (
	tokenEmbd = "token_embd.weight"
	ropeFreqs = "rope_freqs.weight"
)

// A need says whether a weight must be there.
type need uint8

const (
	required need = iota
	optional
	together // all weights of the model that are marked so, or none of them
)

// A weight is one row of an architecture's list: a tensor's name and its shape, row-major.
type weight struct {
	name string // within the block, or the whole name of a tensor outside the blocks
	need need
	dims func(p *Params, l *Layer) []int64
}

// Shapes of weights.
var (
	perEmbd  = func(p *Params, l *Layer) []int64 { return []int64{p.Embd} }
	perHead  = func(p *Params, l *Layer) []int64 { return []int64{p.HeadDim} }
	perQ     = func(p *Params, l *Layer) []int64 { return []int64{p.Heads * p.HeadDim} }
	perKV    = func(p *Params, l *Layer) []int64 { return []int64{l.KVHeads * p.HeadDim} }
	embdToQ  = func(p *Params, l *Layer) []int64 { return []int64{p.Heads * p.HeadDim, p.Embd} }
	embdToKV = func(p *Params, l *Layer) []int64 { return []int64{l.KVHeads * p.HeadDim, p.Embd} }
	qToEmbd  = func(p *Params, l *Layer) []int64 { return []int64{p.Embd, p.Heads * p.HeadDim} }
	embdToFF = func(p *Params, l *Layer) []int64 { return []int64{l.FF, p.Embd} }
	ffToEmbd = func(p *Params, l *Layer) []int64 { return []int64{p.Embd, l.FF} }
	vocab    = func(p *Params, l *Layer) []int64 { return []int64{p.Vocab, p.Embd} }
	halfRot  = func(p *Params, l *Layer) []int64 { return []int64{p.Rot / 2} }
)

// modelWeights lists the weights outside the blocks, which are the same for every architecture.
var modelWeights = []weight{
	{tokenEmbd, required, vocab},
	{"output_norm.weight", required, perEmbd},
	{"output.weight", optional, vocab}, // absent: tied to token_embd
	{ropeFreqs, optional, halfRot},
}

// blockWeights lists the weights of a block of the llama family.
var blockWeights = []weight{
	{"attn_norm.weight", required, perEmbd},
	{"attn_q.weight", required, embdToQ},
	{"attn_k.weight", required, embdToKV},
	{"attn_v.weight", required, embdToKV},
	{"attn_output.weight", required, qToEmbd},
	{"ffn_norm.weight", required, perEmbd},
	{"ffn_gate.weight", required, embdToFF},
	{"ffn_up.weight", required, embdToFF},
	{"ffn_down.weight", required, ffToEmbd},
}

// qkvBiases lists the biases of q, k and v.
var qkvBiases = []weight{
	{"attn_q.bias", together, perQ},
	{"attn_k.bias", together, perKV},
	{"attn_v.bias", together, perKV},
}

// checkWeights looks up every weight of the architecture, checks its type and shape (and the values of
// the RoPE divisors), and warns about tensors that nothing uses.
func (m *Model) checkWeights() error {
	f, p := m.File, m.Params
	tensors := f.Tensors()
	if len(tensors) == 0 {
		return fmt.Errorf("%s: the file has no tensors; it holds a vocabulary only, which tokenize can use", f.Path)
	}
	if err := m.checkBlockNumbers(tensors); err != nil {
		return err
	}
	if t, ok := f.Tensor(tokenEmbd); ok && len(t.Dims) == 2 {
		p.Vocab = t.Dims[1]
	}
	if n, ok := f.Len("tokenizer.ggml.tokens"); ok && p.Vocab > 0 && int64(n) != p.Vocab {
		return fmt.Errorf("%s: tokenizer.ggml.tokens has %d entries, expected %d, the rows of %s", f.Path, n, p.Vocab, tokenEmbd)
	}

	m.weights = make(map[string]graph.Type, len(tensors))
	var all group
	if err := m.checkList("", &Layer{}, modelWeights, &all); err != nil {
		return err
	}
	if err := m.checkDivisors(); err != nil {
		return err
	}
	for i := range p.Layers {
		if err := m.checkList(fmt.Sprintf("blk.%d.", i), &p.Layers[i], m.arch.weights, &all); err != nil {
			return err
		}
	}
	if all.present != "" && all.absent != "" {
		return fmt.Errorf("%s: tensor %s is missing, though %s is there", f.Path, all.absent, all.present)
	}

	var unused, media []string
	for i := range tensors {
		name := tensors[i].Name
		if _, ok := m.weights[name]; ok {
			continue
		}
		if slices.ContainsFunc(otherTensors, func(part string) bool { return strings.HasPrefix(name, part) }) {
			media = append(media, name)
			continue
		}
		if m.matters(name) {
			return fmt.Errorf("%s: tensor %q is not used by architecture %s, and the text would be wrong without it", f.Path, name, p.Arch)
		}
		unused = append(unused, name)
	}
	m.warn("tensors are not used by architecture "+p.Arch, unused)
	m.warn("tensors belong to the parts for images or sounds, which are not used", media)
	return nil
}

// warn adds a warning that lists names that were ignored, the first few in full.
func (m *Model) warn(what string, names []string) {
	const most = 8
	n := len(names)
	if n == 0 {
		return
	}
	if n > most {
		names = append(slices.Clone(names[:most]), "…")
	}
	m.Warnings = append(m.Warnings, fmt.Sprintf("%s: %d %s: %s", m.File.Path, n, what, strings.Join(names, ", ")))
}

// otherTensors lists prefixes of tensors of the parts of a model for images and sounds.
var otherTensors = []string{"a.", "mm.", "multi_modal_projector.", "v.", "vision_tower."}

// modifiers lists suffixes of tensors that change the product with the weight of the same name.
var modifiers = []string{".bias", ".scale", ".input_scale"}

// steps lists patterns of tensors that each stand for a computation step.
var steps = []string{"blk.*_norm.weight", "blk.*sinks*", "token_embd_norm.*", "rope_factors_*"}

// matters reports whether an unused tensor would change the result.
func (m *Model) matters(name string) bool {
	for _, ending := range modifiers {
		if stem, ok := strings.CutSuffix(name, ending); ok {
			_, used := m.weights[stem+".weight"]
			return used
		}
	}
	return slices.ContainsFunc(steps, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// checkBlockNumbers compares the block numbers in tensor names with block_count, so that a wrong count
// is reported as such and not as a missing tensor.
func (m *Model) checkBlockNumbers(tensors []gguf.Tensor) error {
	last := -1
	for i := range tensors {
		rest, ok := strings.CutPrefix(tensors[i].Name, "blk.")
		if !ok {
			continue
		}
		digits, _, _ := strings.Cut(rest, ".")
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 {
			return fmt.Errorf("%s: tensor %q: expected a block number after blk", m.File.Path, tensors[i].Name)
		}
		if n >= m.Params.Blocks {
			return fmt.Errorf("%s: %s.block_count is %d, but the file has tensor %q", m.File.Path, m.Params.Arch, m.Params.Blocks, tensors[i].Name)
		}
		last = max(last, n)
	}
	if last+1 < m.Params.Blocks {
		return fmt.Errorf("%s: %s.block_count is %d, but the file's tensors end with blk.%d", m.File.Path, m.Params.Arch, m.Params.Blocks, last)
	}
	return nil
}

// A group names one present and one absent weight among those marked together.
type group struct{ present, absent string }

func (g *group) note(name string, there bool) {
	if there {
		g.present = name
	} else if g.absent == "" {
		g.absent = name
	}
}

// checkList checks the weights of one list under a prefix.
func (m *Model) checkList(prefix string, l *Layer, list []weight, all *group) error {
	f := m.File
	for _, w := range list {
		name := prefix + w.name
		t, ok := f.Tensor(name)
		if w.need == together {
			all.note(name, ok)
		}
		if !ok {
			if w.need == required {
				return fmt.Errorf("%s: tensor %s is missing, which architecture %s needs", f.Path, name, m.Params.Arch)
			}
			continue
		}
		want := w.dims(m.Params, l)
		got := slices.Clone(t.Dims)
		slices.Reverse(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s: tensor %s has shape %v, expected %v according to the hyper-parameters", f.Path, name, got, want)
		}
		info, ok := quant.Lookup(t.Type)
		switch {
		case !ok || info.Dequantize == nil:
			return fmt.Errorf("%s: tensor %s has type %s, for which there is no computation yet", f.Path, name, t.Type)
		case t.Elems() == 0:
			return fmt.Errorf("%s: tensor %s has shape %v, expected at least one element", f.Path, name, got)
		case info.Integer:
			return fmt.Errorf("%s: tensor %s has type %s, expected a floating-point or quantized type", f.Path, name, t.Type)
		case len(want) == 1 && t.Type != quant.F32:
			return fmt.Errorf("%s: tensor %s has type %s, expected F32 for a vector", f.Path, name, t.Type)
		}
		m.weights[name] = weightType(info, want)
	}
	return nil
}

func weightType(info *quant.Info, dims []int64) graph.Type {
	t := graph.Type{DType: DType(info)}
	for _, d := range dims {
		t.Shape = append(t.Shape, graph.N(d))
	}
	return t
}

// DType is the element type of weights of a GGML type.
func DType(info *quant.Info) graph.DType { return graph.DType(strings.ToLower(info.Name)) }
