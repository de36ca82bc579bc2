// Package frontend turns a GGUF model into an op graph.
//
// It owns the architectures (one file each, built from shared blocks), the reading and checking
// of hyper-parameters, and the names and shapes of weights. It imports gguf, gguf/quant, graph and
// ops; it knows no pass, no target and no kernel.
package frontend

import (
	"fmt"
	"sort"
	"strings"

	"pesti/gguf"
	"pesti/graph"
)

// An arch is one architecture: how its blocks are put together.
type arch struct {
	name    string
	layout  string                     // RoPE: "pairs" turns (2i, 2i+1), "halves" turns (i, i+rot/2)
	weights []weight                   // of one block
	params  func(r *reader, p *Params) // reads what only this architecture has; may be nil
	build   func(b *builder)           // appends the nodes from tokens to logits
}

// archs is the table of architectures.
var archs = []arch{llama, qwen2, gemma3}

// Architectures returns the names of the supported architectures.
func Architectures() []string {
	names := make([]string, len(archs))
	for i := range archs {
		names[i] = archs[i].name
	}
	sort.Strings(names)
	return names
}

// A Model is a model file that has been checked: its hyper-parameters and its weights agree.
type Model struct {
	File     *gguf.File
	Params   *Params
	Warnings []string // keys and tensors that the architecture does not use
	arch     *arch
	weights  map[string]graph.Type
}

// Load reads and checks the hyper-parameters, then the names and shapes of the weights.
func Load(f *gguf.File) (*Model, error) {
	name, err := f.Str("general.architecture")
	if err != nil {
		return nil, err
	}
	for i := range archs {
		if archs[i].name != name {
			continue
		}
		p, err := readParams(f, &archs[i])
		if err != nil {
			return nil, err
		}
		m := &Model{File: f, Params: p, arch: &archs[i]}
		m.warn(len(p.Unread), "keys are not known to architecture "+name, p.Unread)
		return m, m.checkWeights()
	}
	return nil, fmt.Errorf("%s: architecture %q is not supported; supported are %s", f.Path, name, strings.Join(Architectures(), ", "))
}

// Bounds are the largest values of the graph's symbols.
type Bounds struct {
	Tokens, Sequences, Rows, Context int64
}

// Graph builds the model's graph as its description reads: nothing fused, logits of all rows
// computed and the wanted ones (the input "rows") selected at the end. Inputs are tokens, pos
// and seq, all i32[T], and rows, i32[R]; the output is logits, f32[R, vocab]. The residual
// stream after block N is named blk.N.out.
func (m *Model) Graph(bounds Bounds) (*graph.Graph, error) {
	b := &builder{m: m, p: m.Params, g: graph.New(m.Params.Arch,
		graph.Bound{Sym: graph.T, Max: bounds.Tokens},
		graph.Bound{Sym: graph.S, Max: bounds.Sequences},
		graph.Bound{Sym: graph.R, Max: bounds.Rows},
		graph.Bound{Sym: graph.C, Max: bounds.Context})}
	m.arch.build(b)
	if b.err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, b.err)
	}
	b.g.Renumber()
	return b.g, nil
}
