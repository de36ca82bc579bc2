// Package frontend turns a GGUF model into an op graph.
//
// It contains the architectures (one file each, built from shared blocks), the reading and checking
// of hyper-parameters, and the names and shapes of weights. It imports gguf, gguf/quant, graph and
// ops, and depends on no pass, target or kernel.
//
// # How to add an architecture
//
// If every step of the model is an op that exists, two changes are enough (package ops says how to add
// an op):
//
//  1. arch_NAME.go: one [arch], with a reference to the paper. Its name is the value of
//     general.architecture in the file. Its weights are blockWeights and the additional ones, each
//     with its need and its shape. Its build is preNorm if its blocks are those of the llama family;
//     otherwise it is a function made of the parts in blocks.go that reads like the paper's formula.
//     arch_llama.go is the smallest example, arch_qwen3.go has its own build function, arch_gemma3.go
//     uses everything.
//  2. A name in archs, below.
//
// If it has hyper-parameters of its own, its params function reads them. A file is refused if it has a
// key under attention. or rope. that neither this function nor readParams reads, and whose value has an
// effect (see neutral). A key in the table refusals counts as supported once it is read. The key of a
// sliding window is ignored, with a warning, unless the architecture has windows.
//
// Tests:
//
//  3. conformance/tiny/tiny.go: a case in tensors with the additional weights. Tests of lower, exec
//     and conformance/gorgoniaref generate random models of every architecture and fail without it.
//     TestArchitectures in lower expects qkv, gated_mlp and attention to be fused in every block, and
//     five waves in a decode layer.
//  4. conformance/oracle/model.py: a row in ARCHITECTURES with the facts that files do not state.
//     ref_forward.py: the steps that it lacks, under the value names listed there. Write both from
//     the paper or the model's published code, not from step 1. test_oracle.py compares them with
//     plain loops: add a test there.
//  5. conformance/variants_test.go: a row for the plain model, and one for each way in which models
//     of this architecture differ. Add the plain one to TestVariantsGreedy, and the ones that llama.cpp can
//     run to variants_witness_test.go, and mistakes that an author is likely to make to
//     variantFaults. frontend/check_test.go: the files to refuse, such as one without a required
//     weight.
//  6. conformance/transformers/models: a small model whose logits transformers computes, and faults that the
//     comparison must catch. docs/adding.md has the steps.
//  7. If its files name a pre-tokenizer that is not known: frontend/tokenizer/splitters.go.
//  8. The README ("Supported") and CHANGELOG.md name the architectures.
//
// Then run
//
//	go test ./frontend ./lower ./exec ./conformance/gorgoniaref
//	make test-oracle
//	PESTI_REQUIRE=models go test ./conformance -run 'TestVariants/NAME' -v
//	go run ./cmd/pesti compile MODEL -o FILE.plan --explain
//
// The last command needs a real file. It prints what each pass did in every block.
//
// Common mistakes:
//   - layout: the converter permutes q and k of llama so that RoPE rotates adjacent elements
//     ("pairs"); nearly all other architectures rotate "halves". With the wrong layout a model still
//     produces text, but bad text.
//   - Shapes are row-major, [rows, length]: the reverse of the dims in the file.
//   - Name values as blocks.go and ref_forward.py do: layers are compared by name, and blk.N.out
//     must be the residual stream after block N.
//   - qkv adds the biases that the list of weights names. Without qkvBiases a file that has them is
//     refused.
//   - headNorm normalizes each head, norm the whole row. The q and k norms of some models (OLMo 2) are
//     of the second kind.
package frontend

import (
	"fmt"
	"maps"
	"sort"
	"strings"

	"pesti/gguf"
	"pesti/graph"
)

// An arch describes one architecture.
type arch struct {
	name    string
	layout  string                     // RoPE: "pairs" rotates (2i, 2i+1), "halves" rotates (i, i+rot/2)
	windows bool                       // layers may have a sliding window
	weights []weight                   // of one block
	params  func(r *reader, p *Params) // reads the hyper-parameters that only this architecture has; may be nil
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

// A Model is a model file whose hyper-parameters and weights have been checked against each other.
type Model struct {
	File     *gguf.File
	Params   *Params
	Warnings []string // keys and tensors that are not used
	arch     *arch
	weights  map[string]graph.Type
}

// Load reads and checks the hyper-parameters, then the names and shapes of the weights. Of the data of
// weights it reads only rope_freqs, the frequency divisors of RoPE.
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
		m := &Model{File: f, Params: p, Warnings: p.notices, arch: &archs[i]}
		m.warn("keys are not known to architecture "+name, p.Unread)
		m.warn("keys describe the parts for images or sounds, which are not used", p.Media)
		return m, m.checkWeights()
	}
	return nil, fmt.Errorf("%s: architecture %q is not supported; supported are %s", f.Path, name, strings.Join(Architectures(), ", "))
}

// Retype returns the model with the named weights stored as type t, outside of its file.
func (m *Model) Retype(t graph.DType, names []string) *Model {
	c := *m
	c.weights = maps.Clone(m.weights)
	for _, name := range names {
		if w, ok := c.weights[name]; ok { // otherwise the architecture does not use it
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

// Graph builds the model's graph without any fusion. Inputs are tokens, pos and seq, all i32[T],
// and rows, i32[R], the indices of the tokens whose logits are requested. The output is logits,
// f32[R, vocab]; logits of all T rows are computed and R of them selected at the end. The residual
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
