package tokenizer

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// A countdown is a context that ends when it is checked after a number of checks.
type countdown struct {
	context.Context
	checks, most int
}

func (c *countdown) Err() error {
	if c.checks++; c.checks > c.most {
		return context.DeadlineExceeded
	}
	return nil
}

const forever = 1 << 60

// checks returns how often Encode checks its context. It fails the test if ids depend on the context.
func checks(t *testing.T, tok *Tokenizer, text []byte, o Options) int {
	t.Helper()
	c := &countdown{t.Context(), 0, forever}
	ids, err := tok.Encode(c, text, o)
	want, wantErr := tok.Encode(context.Background(), text, o)
	if !slices.Equal(ids, want) || (err == nil) != (wantErr == nil) {
		t.Errorf("%s, %.20q: %d ids, %v; want %d, %v", tok.name, text, len(ids), err, len(want), wantErr)
	}
	return c.checks
}

// kinds returns a tokenizer with each splitter of byte-level BPE, and those of the other models.
// Letters and spaces merge; "<u>" and "</s>" are special.
func kinds(t *testing.T) map[string]*Tokenizer {
	t.Helper()
	toks := map[string]*Tokenizer{}
	for _, s := range splitters {
		c := bpe([]string{"a a", "aa aa", "Ġ a"}, "aa", "aaaa", "Ġa", "<u>", "</s>")
		c.Types[259], c.Types[260] = typeUserDefined, typeControl
		c.BOS, c.Pre = 260, strings.Fields(s.names)[0]
		toks[c.Pre] = make1(t, c)
	}
	c := spm(map[string]float32{"▁": -1, "a": -1, "aa": -2, "▁a": -3, "\n": -1, "\n\n": -1})
	toks["llama"] = make1(t, c)
	c.Model, c.Merges = "gemma4", []string{"a a", "▁ a"}
	toks["gemma4"] = make1(t, c)
	return toks
}

// TestCanceledEncode ends the context at many of its checks, for every splitter and model.
func TestCanceledEncode(t *testing.T) {
	o := Options{BOS: true, ParseSpecial: true}
	const size = 8_000
	for name, tok := range kinds(t) {
		for _, unit := range []string{
			"The quick brown fox, 123 aaaa мир 世界!\n", "a", " ", "\n \r\t", "7", "<u></s>", "<", "\x80", "汉", "aB", "a ", ".",
		} {
			text := bytes.Repeat([]byte(unit), size/len(unit))
			n := checks(t, tok, text, o)
			if least := len(text) / interval; n < least {
				t.Errorf("%s, %.20q: %d checks, want at least %d", name, text, n, least)
			}
			for _, most := range []int{0, 1, n / 3, n / 2, n - 1} {
				c := &countdown{t.Context(), 0, most}
				ids, err := tok.Encode(c, text, o)
				if ids != nil || err != context.DeadlineExceeded || c.checks != most+1 {
					t.Errorf("%s, %.20q: ended at check %d of %d: %d ids, error %v after %d checks", name, text, most+1, n, len(ids), err, c.checks)
				}
			}
			if ids, err := tok.Encode(&countdown{t.Context(), 0, n}, text, o); err != nil || len(ids) == 0 {
				t.Errorf("%s, %.20q: ended after the last check: %d ids, error %v", name, text, len(ids), err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, text := range []string{"", "a", "</s>"} {
			if ids, err := tok.Encode(ended, []byte(text), o); ids != nil || err != context.Canceled {
				t.Errorf("%s, %q: ended before: ids %v, error %v", name, text, ids, err)
			}
			if ids, err := tok.EncodePrompt(ended, []byte(text)); ids != nil || err != context.Canceled {
				t.Errorf("%s, %q: ended before: ids %v of a prompt, error %v", name, text, ids, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ids, err := tok.Encode(ctx, []byte("aaa aa"), o)
		cancel()
		if want, _ := tok.Encode(context.Background(), []byte("aaa aa"), o); err != nil || !slices.Equal(ids, want) {
			t.Errorf("%s: ended after: ids %v, error %v; want %v", name, ids, err, want)
		}
	}
}

// TestChecks checks that every part of the work that depends on the length of a text checks the
// context. How many steps each byte takes is a lower bound, of which 2 % may be in intervals that
// were not completed.
func TestChecks(t *testing.T) {
	plain := func(pre string) Config {
		c := bpe([]string{})
		c.Pre = pre
		return c
	}
	with := func(c Config, edit func(c *Config)) *Tokenizer {
		edit(&c)
		return make1(t, c)
	}
	nothing := func(*Config) {}
	noBOS := func(c *Config) { c.AddBOS = new(bool) }
	const size = 110_000
	tests := []struct {
		name  string
		tok   *Tokenizer
		unit  string
		last  string
		steps float64 // per byte
	}{
		// The search for special tokens, the spans of a word, and their ids.
		{"no words", with(spm(map[string]float32{"x": 0}), nothing), "x", "", 3},
		// The search and the spans, n + n/2 merges that are possible or were, and n/4 ids.
		{"merges", with(spm(map[string]float32{"x": 0, "xx": -1, "xxxx": -2}), nothing), "x", "", 2 + 1.5 + 0.25},
		// The splitter, and the words that it finds.
		{"words", with(plain("gpt-2"), nothing), "x.", "", 2},
		// The search, and the empty text before each token of 4 bytes.
		{"specials alone", with(spm(nil), nothing), "</s>", "", 1.25},
		// The splitter reads the word once, then it has spans and ids.
		{"one word", with(plain("gpt-2"), nothing), "x", "", 3},
		{"spaces", with(plain("gpt-2"), nothing), " ", "", 3},
		// Each alternative that may match reads the run, which then is one word.
		{"line breaks", with(plain("qwen2"), nothing), "\n", "", 3},
		{"spaces without a line break", with(plain("qwen2"), nothing), "\t", "", 4},
		{"small letters", with(plain("tekken"), noBOS), "x", "", 3},
		{"capitals", with(plain("tekken"), noBOS), "X", "", 4},
		// Five rules examine each byte, and one reads the run.
		{"final spaces", with(plain("deepseek-llm"), nothing), "\t", "", 8},
		{"spaces that are not final", with(plain("deepseek-llm"), nothing), "\t", "x", 8},
		// The error has the offset of the byte, which is counted. There are no ids after it.
		{"a byte without a token", with(plain("gpt-2"), func(c *Config) { c.Tokens['y'] = "none" }), "x", "y", 4},
	}
	for _, c := range tests {
		text := append(bytes.Repeat([]byte(c.unit), size/len(c.unit)), c.last...)
		if n, least := checks(t, c.tok, text, Options{ParseSpecial: true}), int(0.98*c.steps*size/interval); n < least {
			t.Errorf("%s: %d checks of the context in %d bytes, want at least %d: %.2f steps per byte, want %.2f", c.name, n, size, least, float64(n)*interval/size, c.steps)
		}
	}
}

// A missing byte is reported where the context ends later, and the context where it ends before.
func TestCanceledWithMissingByte(t *testing.T) {
	c := bpe([]string{})
	c.Tokens['y'] = "none"
	tok := make1(t, c)
	for _, text := range []string{strings.Repeat("x", 10_000) + "y", strings.Repeat("x.", 5_000) + "y"} {
		n := checks(t, tok, []byte(text), Options{})
		for most := range n + 1 {
			ids, err := tok.Encode(&countdown{t.Context(), 0, most}, []byte(text), Options{})
			if ids != nil || err == nil || errors.Is(err, context.DeadlineExceeded) != (most < n) {
				t.Fatalf("ended at check %d of %d: %d ids, error %v", most+1, n, len(ids), err)
			}
			if most == n && !strings.Contains(err.Error(), "found it at offset 10000 of the text") {
				t.Errorf("error %v; want the offset 10000", err)
			}
		}
	}
}

// TestCanceledLongWord ends the context at every other check in a word whose spans, pairs and ids are
// copied in two or more parts.
func TestCanceledLongWord(t *testing.T) {
	tok := make1(t, spm(map[string]float32{"x": 0, "xx": -1}))
	text := bytes.Repeat([]byte("x"), copied*5/4)
	n := checks(t, tok, text, Options{})
	for most := 0; most < n; most += 2 {
		c := &countdown{t.Context(), 0, most}
		if ids, err := tok.Encode(c, text, Options{}); ids != nil || err != context.DeadlineExceeded || c.checks != most+1 {
			t.Fatalf("ended at check %d of %d: %d ids, error %v after %d checks", most+1, n, len(ids), err, c.checks)
		}
	}
}

// TestSpellParts checks that a long word is spelled in parts, between which the spelling can end.
func TestSpellParts(t *testing.T) {
	text := bytes.Repeat([]byte(" é\x80a\n"), copied*4/5)
	checks := (len(text)-1)/copied + 1 // one before each part, and before the rest
	for name, tok := range kinds(t) {
		want := tok.model.spelling.spell(nil, text)
		for most := range checks + 1 {
			c := &countdown{t.Context(), 0, most}
			e := encoder{t: tok, poll: poll{ctx: c}, word: make([]byte, 0, len(want)+3*copied)}
			rest := e.spellParts(text)
			if ended := most < checks; (e.poll.err != nil) != ended || (rest == nil) != ended || c.checks != min(most+1, checks) {
				t.Errorf("%s, ended at check %d of %d: error %v after %d checks, with a rest of %d bytes", name, most+1, checks, e.poll.err, c.checks, len(rest))
			}
			if got := tok.model.spelling.spell(e.word, rest); most == checks && !bytes.Equal(got, want) {
				t.Errorf("%s: another spelling of a long word", name)
			}
		}
	}
}

// TestRoom checks that a long slice is copied in parts, between which the copying can end.
func TestRoom(t *testing.T) {
	for _, length := range []int{0, 1, copied - 1, copied, copied + 1, 3 * copied, 3*copied + 7} {
		s := make([]int, length)
		for i := range s {
			s[i] = i
		}
		s = slices.Clip(s)
		parts := (length + copied - 1) / copied
		if length < copied {
			parts = 0 // append copies it
		}
		for most := range parts + 1 {
			c := &countdown{t.Context(), 0, most}
			got := room(&poll{ctx: c}, s, 9)
			want := s[:min(length, most*copied)]
			if parts == 0 {
				want = s
			}
			if !slices.Equal(got, want) || c.checks != min(most+1, parts) {
				t.Errorf("%d elements, ended at check %d: %d elements after %d checks; want the first %d", length, most+1, len(got), c.checks, len(want))
			}
			if most == parts && parts > 0 && cap(got) < length+9 {
				t.Errorf("%d elements: room for %d; want %d", length, cap(got), length+9)
			}
		}
	}
}

func TestEncodePrompt(t *testing.T) {
	c := bpe([]string{}, "<s>")
	c.Types[256], c.BOS = typeControl, 256
	off, on := false, true
	for _, d := range []struct {
		bos    int
		addBOS *bool
		text   string
		want   []int32 // nil: an error
	}{
		{256, &on, "", []int32{256}},
		{256, &off, "", []int32{256}},
		{-1, &off, "", nil},
		{256, &on, "a", []int32{256, 'a'}},
		{256, &off, "a", []int32{'a'}},
		{256, &on, "<s>a", []int32{256, 'a'}},
		{256, &on, "<s><s>", []int32{256, 256}},
		{-1, &off, "<s>", []int32{256}},
	} {
		c.BOS, c.AddBOS = d.bos, d.addBOS
		tok := make1(t, c)
		ids, err := tok.EncodePrompt(t.Context(), []byte(d.text))
		if !slices.Equal(ids, d.want) || (err == nil) != (d.want != nil) {
			t.Errorf("%q with BOS %d: ids %v, error %v; want %v", d.text, d.bos, ids, err, d.want)
		}
		if err != nil && err.Error() != "the prompt is empty and the model has no BOS token; expected some text" {
			t.Errorf("error %v", err)
		}
	}
}
