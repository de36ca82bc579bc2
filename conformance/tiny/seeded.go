package tiny

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"pesti/gguf"
	"pesti/gguf/quant"
)

// A Seeded describes a model whose weights follow from its name and the names of its tensors, so that
// other programs can have the same model without its file. conformance/transformers/seeded.py computes
// the same weights. The descriptions are the files of conformance/transformers/models, whose README
// explains the fields.
type Seeded struct {
	Name         string                     `json:"-"`
	Arch         string                     `json:"arch"`
	Layers       int                        `json:"layers"`
	Tokens       []int32                    `json:"tokens"`
	Keys         map[string]json.RawMessage `json:"keys"`
	Tensors      map[string][]int64         `json:"tensors"` // shapes, [rows, length]
	Values       map[string][2]float64      `json:"values"`  // mean and spread where they are not the usual ones
	Transformers json.RawMessage            `json:"transformers"`
}

// ParseSeeded reads a description.
func ParseSeeded(name string, text []byte) (*Seeded, error) {
	s := &Seeded{Name: name}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for pattern := range s.Values {
		if s.Tensors[pattern] == nil {
			return nil, fmt.Errorf("%s: values of %s, which is no tensor", name, pattern)
		}
	}
	return s, nil
}

// Model returns the tensors, in alphabetical order, and the metadata with a vocabulary.
func (s *Seeded) Model() (*Model, error) {
	m := &Model{Meta: gguf.NewWriter()}
	m.Meta.SetStr("general.architecture", s.Arch)
	m.Meta.SetStr("general.name", "seeded") // llama.cpp takes properties of the vocabulary from names such as phi3
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		if err := setJSON(m.Meta, s.Arch+"."+key, s.Keys[key]); err != nil {
			return nil, fmt.Errorf("%s: key %s: %w", s.Name, key, err)
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(s.Tensors)) {
		names := []string{pattern}
		if strings.Contains(pattern, "*") {
			names = nil
			for l := range s.Layers {
				names = append(names, strings.ReplaceAll(pattern, "*", strconv.Itoa(l)))
			}
		}
		for _, name := range names {
			if m.Tensor(name) != nil {
				return nil, fmt.Errorf("%s: tensor %s is described twice", s.Name, name)
			}
			shape := s.Tensors[pattern]
			mean, spread := usualRange(name, shape)
			if v, ok := s.Values[pattern]; ok {
				mean, spread = v[0], v[1]
			}
			count, dims := int64(1), slices.Clone(shape)
			for _, n := range shape {
				count *= n
			}
			slices.Reverse(dims)
			m.Tensors = append(m.Tensors, Tensor{Name: name, Type: quant.F32, Dims: dims, Data: SeededValues(s.Name, name, int(count), mean, spread)})
		}
	}
	embd := m.Tensor("token_embd.weight")
	if embd == nil {
		return nil, fmt.Errorf("%s: no tensor token_embd.weight", s.Name)
	}
	vocabulary(m.Meta, int(embd.Dims[1]))
	return m, nil
}

// GGUF returns the bytes of the model's file, in F32.
func (s *Seeded) GGUF() ([]byte, error) {
	m, err := s.Model()
	if err != nil {
		return nil, err
	}
	return m.bytes()
}

// SeededValues returns n numbers that are uniform within mean ± spread. Number i is the 24 high bits of
// output i of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"),
// whose state starts at the FNV-1a hash of seed and name. As 2k + 1 - 2²⁴ they are an odd integer that
// float32 represents exactly; the product and the sum are rounded once each, so the bits are the same
// everywhere.
func SeededValues(seed, name string, n int, mean, spread float64) []float32 {
	h := fnv.New64a()
	h.Write([]byte(seed + "/" + name))
	state := h.Sum64()
	data := make([]float32, n)
	for i := range data {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		unit := float32(2*int64(z>>40)+1-1<<24) * 0x1p-24
		data[i] = float32(unit*float32(spread)) + float32(mean)
	}
	return data
}

// usualRange is for a matrix the range that keeps the variance of its input; norms are around 1, and
// biases around 0.
func usualRange(name string, shape []int64) (mean, spread float64) {
	switch {
	case len(shape) > 1:
		return 0, math.Sqrt(3 / float64(shape[len(shape)-1]))
	case strings.HasSuffix(name, ".bias"):
		return 0, 0.5
	}
	return 1, 0.5
}

// setJSON writes a key: a string, a boolean, a number, or an array of booleans or of numbers. A number
// with a point or an exponent is a float32, another a uint32.
func setJSON(w *gguf.Writer, key string, text json.RawMessage) error {
	isFloat := bytes.ContainsAny(text, ".eE")
	var (
		str   string
		flag  bool
		whole uint32
		float float32
		flags []bool
		ints  []uint32
	)
	switch {
	case json.Unmarshal(text, &str) == nil:
		w.SetStr(key, str)
	case json.Unmarshal(text, &flag) == nil:
		w.SetBool(key, flag)
	case json.Unmarshal(text, &whole) == nil:
		w.SetUint32(key, whole)
	case isFloat && json.Unmarshal(text, &float) == nil:
		w.SetFloat32(key, float)
	case json.Unmarshal(text, &flags) == nil:
		w.SetBools(key, flags)
	case json.Unmarshal(text, &ints) == nil:
		w.SetUint32s(key, ints)
	default:
		return fmt.Errorf("%s, expected a string, a boolean, a number, or an array of booleans or integers", text)
	}
	return nil
}
