// Package frontend turns a GGUF model into an op graph.
//
// It owns the architectures (one file each, built from shared blocks), the reading and checking
// of hyper-parameters, and the names and shapes of weights. It imports gguf, gguf/quant, graph and
// ops; it knows no pass, no target and no kernel.
//
// # How to add an architecture
//
// Two files, where all its steps are ops that there are (how to add one: package ops):
//
//  1. arch_NAME.go: one [arch], with the paper. Its name is the file's general.architecture; its
//     weights are blockWeights and what it has besides, each with its need and its shape; its
//     build is preNorm, if a block is that of the llama family, or a function that reads like the
//     paper's formula, from the blocks of blocks.go. arch_llama.go is the least, arch_qwen3.go has
//     a build of its own, arch_gemma3.go has all of it.
//  2. A name in archs, below.
//
// If it has hyper-parameters of its own, its params reads them. Every key under attention. and
// rope. must be asked for, here or by readParams, or the file is refused; a key that stands in the
// table refusals counts as supported once it is asked for.
//
// What proves it:
//
//  3. conformance/tiny/tiny.go: a case in tensors with the weights that it has besides. Random
//     models of every architecture are drawn in tests of lower, exec and conformance/gorgoniaref, which
//     fail without it. lower's TestArchitectures wants qkv, swiglu and attention fused in every
//     block, and five waves in a decode layer.
//  4. conformance/oracle/model.py: a row in ARCHITECTURES with the facts that files do not state,
//     and in ref_forward.py the steps that it lacks, under the names of values listed there. Write
//     both from the paper or the model's published code, not from step 1. test_oracle.py holds
//     them to plain loops: a test there.
//  5. conformance/variants_test.go: a row for the plain model, and one for each thing in which its
//     models differ; the plain one also in TestVariantsGreedy, those that llama.cpp can judge also
//     in variants_witness_test.go, and what a builder is likely to forget in variantFaults.
//     frontend/check_test.go: the files to refuse, such as one that lacks a required weight.
//  6. If its files name a pre-tokenizer that is not known: frontend/tokenizer/splitters.go.
//  7. The README ("Supported") and CHANGELOG.md name the architectures.
//
// Then run
//
//	go test ./frontend ./lower ./exec ./conformance/gorgoniaref
//	make test-oracle
//	PESTI_REQUIRE=models go test ./conformance -run 'TestVariants/NAME' -v
//	go run ./cmd/pesti compile MODEL -o FILE.plan --explain
//
// The last wants a real file, and tells what each pass did in every block.
//
// Traps:
//   - layout: the converter permutes q and k of llama so that RoPE turns neighbours ("pairs");
//     nearly all others turn "halves". The wrong one still speaks, and badly.
//   - Shapes are row-major, [rows, length]: the reverse of what the file says.
//   - Name values as blocks.go and ref_forward.py do: layers are compared by name, and blk.N.out
//     must be the residual stream after block N.
//   - qkv adds those biases that the list names; without qkvBiases a file that has them is refused.
//   - headNorm is a norm for each head, norm one for the row. The q and k norms of some models
//     (OLMo 2) are of the second kind.
package frontend

import (
	"fmt"
	"maps"
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
var archs = []arch{llama, qwen2, qwen3, gemma3}

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

// Load reads and checks the hyper-parameters, then the names and shapes of the weights. The only
// weights that it reads are the divisors of RoPE.
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
		m.warn("keys are not known to architecture "+name, p.Unread)
		return m, m.checkWeights()
	}
	return nil, fmt.Errorf("%s: architecture %q is not supported; supported are %s", f.Path, name, strings.Join(Architectures(), ", "))
}

// Retype returns the model with the weights of those names stored as t, outside of its file.
func (m *Model) Retype(t graph.DType, names []string) *Model {
	c := *m
	c.weights = maps.Clone(m.weights)
	for _, name := range names {
		if w, ok := c.weights[name]; ok { // else the architecture does not use it
			w.DType = t
			c.weights[name] = w
		}
	}
	return &c
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
