package frontend

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"pesti/gguf"
)

// Params holds a model's hyper-parameters. They are read from the metadata and checked before any
// weight is read.
type Params struct {
	Arch    string
	Name    string
	Blocks  int
	Embd    int64 // width of the residual stream
	Context int64 // positions the model was trained for
	Vocab   int64 // rows of token_embd

	Heads   int64
	HeadDim int64
	Rot     int64 // dimensions of a head that RoPE rotates, even
	Eps     float64
	Scale   float64 // factor on attention scores, usually 1/√HeadDim
	Layers  []Layer

	Asked  []string // keys that were read, in alphabetical order, without the architecture's prefix
	Unread []string // keys with the architecture's prefix that are not known
	Media  []string // such keys of the parts for images and sounds

	notices []string // keys that were ignored, and why
}

// A Layer holds the hyper-parameters that may differ between blocks.
type Layer struct {
	KVHeads int64
	FF      int64
	Window  int64 // positions that a token attends to, its own included; 0 for all
	Rope    Rope
}

const maxBlocks = 1 << 10 // far above any published model; limits the memory that a damaged file can cause to be allocated

// A reader reads a file's keys under an architecture's prefix. It keeps the first error, so that
// callers need not check each read, and remembers which keys were read.
type reader struct {
	f       *gguf.File
	arch    string
	windows bool            // the architecture has sliding windows
	asked   map[string]bool // by suffix
	err     error
}

// key returns the whole name of a key, which is a synonym of suffix if the file has only that.
func (r *reader) key(suffix string) string {
	r.asked[suffix] = true
	key := r.arch + "." + suffix
	for _, s := range synonyms {
		if other := r.arch + "." + s.other; s.key == suffix && !r.f.Has(key) && r.f.Has(other) {
			return other
		}
	}
	return key
}

func (r *reader) fail(suffix, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s %s", r.f.Path, r.key(suffix), fmt.Sprintf(format, args...))
	}
}

func (r *reader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// uint reads a required integer in [1, max].
func (r *reader) uint(suffix string, max int64) int64 {
	u, err := r.f.Uint(r.key(suffix))
	if err != nil {
		r.keep(err)
		return 1
	}
	if u < 1 || u > uint64(max) {
		r.fail(suffix, "is %d, expected 1 to %d", u, max)
		return 1
	}
	return int64(u)
}

// optUint is uint with a default for an absent key.
func (r *reader) optUint(suffix string, max, absent int64) int64 {
	if !r.f.Has(r.key(suffix)) {
		return absent
	}
	return r.uint(suffix, max)
}

// zero reports whether the key has a number and it is 0.
func (r *reader) zero(suffix string) bool {
	v, ok := r.f.Value(r.key(suffix))
	if !ok || v.Kind() == gguf.Array {
		return false
	}
	switch v.Any() {
	case uint64(0), int64(0), float64(0):
		return true
	}
	return false
}

// count reads an integer in [0, max], which is 0 if the key is absent.
func (r *reader) count(suffix string, max int64) int64 {
	if r.zero(suffix) {
		return 0
	}
	return r.optUint(suffix, max, 0)
}

// same reads an integer that only one value is supported for.
func (r *reader) same(suffix string, want int64) {
	if n := r.count(suffix, 1<<16); n != 0 && n != want {
		r.fail(suffix, "is %d, expected %d: layers with a window differ from the others in the base of RoPE only", n, want)
	}
}

// perLayer reads a number, or an array with one for each block.
func (r *reader) perLayer(suffix string, max int64, blocks int, absent int64) []int64 {
	out := make([]int64, blocks)
	if _, isArray := r.f.Len(r.key(suffix)); !isArray {
		n := r.optUint(suffix, max, absent)
		for i := range out {
			out[i] = n
		}
		return out
	}
	list, err := r.f.Ints(r.key(suffix))
	if err != nil {
		r.keep(err)
		return out
	}
	if len(list) != blocks {
		r.fail(suffix, "has %d entries, expected one for each of %d blocks", len(list), blocks)
		return out
	}
	for i := range out {
		if list[i] < 1 || list[i] > max {
			r.fail(suffix, "is %d in block %d, expected 1 to %d", list[i], i, max)
		}
		out[i] = list[i]
	}
	return out
}

// float reads a finite number above 0; absent 0 makes the key required.
func (r *reader) float(suffix string, absent float64) float64 {
	x, err := r.f.Float(r.key(suffix))
	if errors.Is(err, gguf.ErrNoKey) && absent != 0 {
		return absent
	}
	if err != nil {
		r.keep(err)
		return 1
	}
	if !(x > 0) || math.IsInf(x, 0) {
		r.fail(suffix, "is %v, expected a number above 0", x)
		return 1
	}
	return x
}

// within is float with bounds far outside those of any model. Beyond the bounds, products somewhere in
// the graph would leave the range of float32, and no error could name the key.
func (r *reader) within(suffix string, low, high, absent float64) float64 {
	x := r.float(suffix, absent)
	if x < low || x > high {
		r.fail(suffix, "is %v, expected %v to %v", x, low, high)
		return 1
	}
	return x
}

// readParams reads the keys that all architectures share.
func readParams(f *gguf.File, a *arch) (*Params, error) {
	r := &reader{f: f, arch: a.name, windows: a.windows, asked: make(map[string]bool)}
	p := &Params{Arch: a.name}
	if f.Has("general.name") {
		name, err := f.Str("general.name")
		r.keep(err)
		p.Name = name
	}
	p.Blocks = int(r.uint("block_count", maxBlocks))
	p.Embd = r.uint("embedding_length", 1<<24)
	p.Context = r.uint("context_length", 1<<31)
	p.Heads = r.uint("attention.head_count", 1<<16)
	p.Eps = r.within("attention.layer_norm_rms_epsilon", 1e-30, 1, 0)
	if r.err != nil {
		return nil, r.err
	}

	key := r.key("attention.key_length")
	if f.Has(key) {
		p.HeadDim = r.uint("attention.key_length", 1<<16)
	} else if p.Embd%p.Heads != 0 {
		r.fail("attention.head_count", "is %d, expected a divisor of embedding_length %d (there is no %s)", p.Heads, p.Embd, key)
	} else {
		p.HeadDim = p.Embd / p.Heads
	}
	if v := r.optUint("attention.value_length", 1<<16, p.HeadDim); v != p.HeadDim {
		r.fail("attention.value_length", "is %d, expected the key length %d: values of another length are not supported", v, p.HeadDim)
	}
	p.Rot = p.HeadDim
	if f.Has(r.key("rope.dimension_count")) {
		p.Rot = r.uint("rope.dimension_count", 1<<16)
	}
	if p.Rot > p.HeadDim || p.Rot%2 != 0 {
		r.fail("rope.dimension_count", "is %d, expected an even number up to the head's %d", p.Rot, p.HeadDim)
	}

	kv := r.perLayer("attention.head_count_kv", 1<<16, p.Blocks, p.Heads)
	ff := r.perLayer("feed_forward_length", 1<<24, p.Blocks, 0)
	rope := readRope(r, p)
	window := r.window(p)
	p.Scale = 1 / math.Sqrt(float64(p.HeadDim))
	if !r.zero("attention.scale") { // 0 is none
		p.Scale = r.within("attention.scale", 1e-6, 100, p.Scale)
	}
	p.Layers = make([]Layer, p.Blocks)
	for i := range p.Layers {
		if r.err == nil && p.Heads%kv[i] != 0 {
			r.fail("attention.head_count_kv", "is %d, expected a divisor of head_count %d", kv[i], p.Heads)
		}
		if r.err == nil && ff[i] == 0 {
			r.keep(fmt.Errorf("%s: %s is missing", f.Path, r.key("feed_forward_length")))
		}
		p.Layers[i] = Layer{KVHeads: kv[i], FF: ff[i], Window: window, Rope: rope}
	}
	if a.params != nil && r.err == nil {
		a.params(r, p)
	}
	p.Asked = slices.Sorted(maps.Keys(r.asked))
	p.Unread, p.Media = r.rest()
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}

// window reads the sliding window, 0 for none. An architecture whose published models attend to all
// positions ignores it, with a notice: some converters copy the number from a configuration in which
// another entry switches the window off.
func (r *reader) window(p *Params) int64 {
	const suffix = "attention.sliding_window"
	if r.windows {
		return r.count(suffix, 1<<31)
	}
	if v, ok := r.f.Value(r.key(suffix)); ok && !r.zero(suffix) {
		p.notices = append(p.notices, fmt.Sprintf("%s: %s is %s: ignored, since architecture %s has no sliding window", r.f.Path, r.key(suffix), v, r.arch))
	}
	return 0
}
