package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"pesti/gguf"
)

// The metadata keys of a tokenizer
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
const (
	keyModel      = "tokenizer.ggml.model"
	keyPre        = "tokenizer.ggml.pre"
	keyTokens     = "tokenizer.ggml.tokens"
	keyScores     = "tokenizer.ggml.scores"
	keyTypes      = "tokenizer.ggml.token_type"
	keyMerges     = "tokenizer.ggml.merges"
	keyBOS        = "tokenizer.ggml.bos_token_id"
	keyEOS        = "tokenizer.ggml.eos_token_id"
	keyEOT        = "tokenizer.ggml.eot_token_id"
	keyEOM        = "tokenizer.ggml.eom_token_id"
	keyFIMPad     = "tokenizer.ggml.fim_pad_token_id"
	keyFIMRepo    = "tokenizer.ggml.fim_rep_token_id"
	keyFIMFile    = "tokenizer.ggml.fim_sep_token_id"
	keyUNK        = "tokenizer.ggml.unknown_token_id"
	keyAddBOS     = "tokenizer.ggml.add_bos_token"
	keySpaceFirst = "tokenizer.ggml.add_space_prefix"
)

// The values of tokenizer.ggml.token_type.
const (
	typeUndefined   = 0
	typeNormal      = 1
	typeUnknown     = 2
	typeControl     = 3
	typeUserDefined = 4
	typeUnused      = 5
	typeByte        = 6
)

// Config describes a tokenizer by the metadata of a GGUF file. Absent arrays
// are nil, absent ids −1, absent flags nil.
//
// tokenizer.ggml.add_eos_token is not read, because the texts that are tokenized
// here are prompts, which the model continues.
type Config struct {
	Model  string // gpt2, llama or gemma4
	Pre    string // the splitter, for gpt2
	HasPre bool

	Tokens []string
	Scores []float32 // one per token, for llama
	Types  []int32   // one per token, for llama and gemma4; nil: all are normal
	Merges []string  // pairs of tokens with a space between, for gpt2 and gemma4

	BOS, EOS, EOT, EOM, UNK int

	// FIM has the ids of fill-in-the-middle tokens that end generation: padding, the next repository, the
	// next file. It is nil if the file names none.
	FIM *[3]int

	AddBOS         *bool
	AddSpacePrefix *bool
}

// A namedID is a token id that has its own key.
type namedID struct {
	key string
	id  *int
}

func (c *Config) ids() []namedID {
	return append(c.ends(), namedID{keyBOS, &c.BOS}, namedID{keyUNK, &c.UNK})
}

// ends returns the ids that end generation.
func (c *Config) ends() []namedID {
	ids := []namedID{{keyEOS, &c.EOS}, {keyEOT, &c.EOT}, {keyEOM, &c.EOM}}
	if c.FIM != nil {
		ids = append(ids, namedID{keyFIMPad, &c.FIM[0]}, namedID{keyFIMRepo, &c.FIM[1]}, namedID{keyFIMFile, &c.FIM[2]})
	}
	return ids
}

// FromGGUF returns the tokenizer that f describes. It returns the errors of [New], and an error if
// a key has the wrong type.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	c := Config{BOS: -1, EOS: -1, EOT: -1, EOM: -1, UNK: -1, FIM: &[3]int{-1, -1, -1}, HasPre: f.Has(keyPre)}
	var types []int64
	err := cmp.Or(
		optional(f.Str, keyModel, &c.Model),
		optional(f.Str, keyPre, &c.Pre),
		optional(f.Strs, keyTokens, &c.Tokens),
		optional(f.Floats, keyScores, &c.Scores),
		optional(f.Ints, keyTypes, &types),
		optional(f.Strs, keyMerges, &c.Merges),
	)
	for _, i := range c.ids() {
		var id uint64
		err = cmp.Or(err, optional(f.Uint, i.key, &id))
		if f.Has(i.key) {
			*i.id = int(min(id, math.MaxInt))
		}
	}
	choices := []struct {
		key    string
		choice **bool
	}{{keyAddBOS, &c.AddBOS}, {keySpaceFirst, &c.AddSpacePrefix}}
	for _, i := range choices {
		var choice bool
		err = cmp.Or(err, optional(f.Bool, i.key, &choice))
		if f.Has(i.key) {
			*i.choice = &choice
		}
	}
	if err != nil {
		return nil, err
	}
	if types != nil {
		c.Types = make([]int32, len(types))
		for i, t := range types {
			c.Types[i] = int32(t)
		}
	}
	return New(f.Path, c)
}

// CheckModel returns an error if a model file has other tokens than t. A file without tokens agrees with any
// tokenizer.
func (t *Tokenizer) CheckModel(f *gguf.File) error {
	var tokens []string
	if err := optional(f.Strs, keyTokens, &tokens); err != nil || tokens == nil {
		return err
	}
	if found, want := len(t.tokens), len(tokens); found != want {
		return fmt.Errorf("is of %s, with %d tokens; expected the %d of %s", t.name, found, want, f.Path)
	}
	for i, want := range tokens {
		if found := t.tokens[i]; found != want {
			return fmt.Errorf("is of %s, where token %d of %d is %q; expected %q as in %s", t.name, i, len(tokens), found, want, f.Path)
		}
	}
	return nil
}

// optional reads key into dst, or leaves dst unchanged if the key is absent.
func optional[T any](read func(string) (T, error), key string, dst *T) error {
	v, err := read(key)
	switch {
	case errors.Is(err, gguf.ErrNoKey):
		return nil
	case err != nil:
		return err
	}
	*dst = v
	return nil
}

// check returns an error if c cannot be used.
func (c *Config) check(m *model) error {
	n := len(c.Tokens)
	switch {
	case n == 0:
		return fmt.Errorf("%s is missing or empty; expected the vocabulary: convert the model again", keyTokens)
	case n > math.MaxInt32:
		return fmt.Errorf("%s has %d tokens; expected fewer than 2^31", keyTokens, n)
	case c.Types != nil && len(c.Types) != n:
		return fmt.Errorf("%s has %d elements; expected %d, as many as %s: convert the model again", keyTypes, len(c.Types), n, keyTokens)
	case c.Scores != nil && len(c.Scores) != n:
		return fmt.Errorf("%s has %d elements; expected %d, as many as %s: convert the model again", keyScores, len(c.Scores), n, keyTokens)
	}
	has := map[string]bool{keyScores: c.Scores != nil, keyTypes: c.Types != nil, keyMerges: c.Merges != nil}
	for _, key := range m.wants {
		if !has[key] {
			return fmt.Errorf("%s is missing; expected it with %s %q: convert the model again", key, keyModel, m.name)
		}
	}
	for i, s := range c.Scores {
		if s != s {
			return fmt.Errorf("%s[%d] is NaN; expected a number: convert the model again", keyScores, i)
		}
	}
	for i, s := range c.Merges {
		if a, b, ok := strings.Cut(s, " "); !ok || a == "" || b == "" || strings.Contains(b, " ") {
			return fmt.Errorf("%s[%d] is %q; expected two tokens with one space between: convert the model again", keyMerges, i, s)
		}
	}
	for _, i := range c.ids() {
		if *i.id < -1 || *i.id >= n {
			return fmt.Errorf("%s is %d; expected an id below %d, the size of the vocabulary: convert the model again", i.key, *i.id, n)
		}
	}
	return nil
}

// New returns a tokenizer. Errors begin with name, the name of the file, and say
// which key is wrong, what it holds, and what was expected.
func New(name string, c Config) (*Tokenizer, error) {
	t, err := c.build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t.name = name
	for i, w := range t.warnings {
		t.warnings[i] = name + ": " + w
	}
	return t, nil
}

func (c *Config) build() (*Tokenizer, error) {
	m, ok := findModel(c.Model)
	if !ok {
		found := fmt.Sprintf("is %q", c.Model)
		if c.Model == "" {
			found = "is missing"
		}
		return nil, fmt.Errorf("%s %s; expected one of: %s", keyModel, found, strings.Join(modelNames(), ", "))
	}
	if err := c.check(m); err != nil {
		return nil, err
	}
	t := &Tokenizer{
		model:    m,
		splitter: m.splitter,
		tokens:   c.Tokens,
		scores:   c.Scores,
		types:    c.Types,
		bos:      int32(c.BOS),
		unk:      int32(c.UNK),
	}
	if t.splitter == nil {
		pre := c.Pre
		if !c.HasPre {
			pre = defaultSplitter
			t.warnings = append(t.warnings, keyPre+" is missing: words are split by the default rules, which may not be those of the model, so that its text may be worse; convert the model again")
		}
		if t.splitter, ok = findSplitter(pre); !ok {
			return nil, fmt.Errorf("%s is %q; expected one of: %s", keyPre, pre, strings.Join(splitterNames(), ", "))
		}
	}
	t.addBOS = t.splitter.addBOS
	if c.AddBOS != nil && !m.alwaysBOS {
		t.addBOS = *c.AddBOS
	}
	if t.addBOS && c.BOS < 0 {
		return nil, fmt.Errorf("%s is missing; expected an id, since texts of this model begin with one (%s): convert the model again", keyBOS, keyAddBOS)
	}
	t.spaceFirst = m.spaceFirst && (c.AddSpacePrefix == nil || *c.AddSpacePrefix)
	t.index(c)
	return t, nil
}
