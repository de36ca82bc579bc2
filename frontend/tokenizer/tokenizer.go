package tokenizer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
)

// A Tokenizer converts text to token ids and back. It is immutable, so that any
// number of goroutines may use it.
type Tokenizer struct {
	name     string // of the file, for errors
	model    *model
	splitter *splitter

	tokens []string  // as the file spells them
	types  []int32   // one per token
	scores []float32 // one per token, or nil

	ids     map[string]int32 // ordinary tokens
	longest int              // length of the longest of them, in bytes
	ranks   map[string]int32 // merges, "left right"
	byteIDs [256]int32       // token of each byte, −1 if there is none
	always  *specials        // user-defined tokens
	parsed  *specials        // user-defined and control tokens

	bos        int32 // −1 for none
	unk        int32 // the unknown token, for a byte without a token; −1 for none
	ends       []int32
	addBOS     bool
	spaceFirst bool
	warnings   []string
}

// Options control Encode.
type Options struct {
	BOS          bool // begin with the BOS token if the model uses one
	ParseSpecial bool // recognize control tokens in the text; leave it off for untrusted text such as chat messages
}

// Size returns the number of tokens.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// BOS returns the token that begins a text, and whether the model has one.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

// EndOfGeneration returns the tokens that end generation, in ascending order: the
// ends of a text, a turn and a message that the file names, and tokens of the
// vocabulary that are known to end a turn.
func (t *Tokenizer) EndOfGeneration() []int32 { return slices.Clone(t.ends) }

// Warnings returns one line for each doubtful property of the file.
func (t *Tokenizer) Warnings() []string { return slices.Clone(t.warnings) }

// Encode returns the ids of text in O(n log n) time. Text need not be UTF-8: bytes
// that are not are encoded one by one. Text is neither changed nor kept.
//
// No second BOS token is added if ParseSpecial is on and the text begins with one.
// If the model requires a space at the beginning of texts, it is added to the
// first ordinary text, also after special tokens.
//
// It fails if the vocabulary has neither a token for some byte of the text nor an
// unknown token. Vocabularies without some rare bytes are common. If ctx ends, the
// error is that of ctx.Err, within milliseconds however long the text is.
func (t *Tokenizer) Encode(ctx context.Context, text []byte, o Options) ([]int32, error) {
	e := encoder{t: t, poll: poll{ctx: ctx}, spaceFirst: t.spaceFirst}
	bos := o.BOS && t.addBOS
	if bos {
		e.add(t.bos)
	}
	special := t.always
	if o.ParseSpecial {
		special = t.parsed
	}
	from := 0
	for at, token := range special.in(&e.poll, text) {
		e.ordinary(text[from:at], from)
		e.add(token.id)
		from = at + token.length
	}
	e.ordinary(text[from:], from)
	if e.poll.err != nil {
		return nil, e.poll.err
	}
	if bos && len(e.ids) > 1 && e.ids[1] == t.bos {
		return e.ids[1:], nil
	}
	return e.ids, nil
}

// EncodePrompt returns the ids of a text for a model to continue: it begins with the BOS token if the model uses
// one, and the names of control tokens become these tokens. An empty prompt becomes the BOS token.
func (t *Tokenizer) EncodePrompt(ctx context.Context, text []byte) ([]int32, error) {
	ids, err := t.Encode(ctx, text, Options{BOS: true, ParseSpecial: true})
	if err != nil || len(ids) > 0 {
		return ids, err
	}
	bos, ok := t.BOS()
	if !ok {
		return nil, errors.New("the prompt is empty and the model has no BOS token; expected some text")
	}
	return []int32{bos}, nil
}

// An encoder holds the state of one call of Encode.
type encoder struct {
	t          *Tokenizer
	poll       poll
	ids        []int32
	spaceFirst bool // the next ordinary text begins with a space

	text  []byte // of the word
	at    int    // its offset in the whole text
	word  []byte // its spelling
	key   []byte
	spans []span
	pairs pairHeap
}

// add appends an id.
func (e *encoder) add(id int32) {
	if len(e.ids) == cap(e.ids) {
		e.ids = room(&e.poll, e.ids, 1)
	}
	e.ids = append(e.ids, id)
}

// ordinary appends the ids of text that has no special tokens and begins at byte at.
func (e *encoder) ordinary(text []byte, at int) {
	if e.poll.ended(1) || len(text) == 0 {
		return
	}
	if e.spaceFirst {
		text = copyTo(&e.poll, append(allocate[byte](&e.poll, 1+len(text)), ' '), text)
		at--
		e.spaceFirst = false
	}
	split(&e.poll, e.t.splitter.rules, text, func(word []byte) {
		e.text, e.at, at = word, at, at+len(word)
		rest := word
		if e.word = e.word[:0]; len(word) > copied {
			rest = e.spellParts(word)
		}
		if e.word = e.t.model.spelling.spell(e.word, rest); e.poll.ended(len(word)) {
			return
		}
		if whole := e.t.splitter.whole; whole != nil && len(e.word) <= e.t.longest && whole(word) {
			if id, ok := e.t.ids[string(e.word)]; ok {
				e.add(id)
				return
			}
		}
		if e.merge(); e.poll.err != nil {
			return
		}
		for n, i := 0, int32(0); i >= 0; n, i = n+1, e.spans[i].next {
			e.lookUp(int(e.spans[i].lo), int(e.spans[i].hi))
			if last(n) && e.poll.ended(interval) {
				return
			}
		}
	})
}

// spellParts spells a long word except the rest that it returns, for which e.word has room. The rest is
// empty if the call ends.
func (e *encoder) spellParts(word []byte) (rest []byte) {
	const most = len("▁") // bytes that spell one
	for ; !e.poll.ended(interval); word = word[copied:] {
		e.word = room(&e.poll, e.word, most*copied)
		if len(word) <= copied {
			return word
		}
		e.word = e.t.model.spelling.spell(e.word, word[:copied])
	}
	return nil
}

// lookUp appends the token of a span of the word, or the tokens of its bytes.
func (e *encoder) lookUp(lo, hi int) {
	spelled := e.word[lo:hi]
	if id, ok := e.t.ids[string(spelled)]; ok {
		e.add(id)
		return
	}
	for i, b := range e.t.model.spelling.unspell(nil, string(spelled)) {
		id := e.t.byteIDs[b]
		if id < 0 {
			id = e.t.unk
		}
		if id < 0 {
			at := e.at + e.unspelled(lo) + i
			e.poll.fail(fmt.Errorf("%s: the vocabulary has no token for the byte 0x%02X; found it at offset %d of the text, expected text without it: leave out the character that it is part of", e.t.name, b, at))
			return
		}
		e.add(id)
	}
}

// unspelled returns the number of bytes of the text that the first n bytes of the word spell.
func (e *encoder) unspelled(n int) int {
	at := 0
	for spelled := 0; spelled < n; at++ {
		if last(at) && e.poll.ended(interval) {
			break
		}
		e.key = e.t.model.spelling.spell(e.key[:0], e.text[at:at+1])
		spelled += len(e.key)
	}
	return at
}

// Decode returns the text of ids. It is the inverse of Encode, byte for byte, for
// texts without unknown tokens and without the character ▁. Control tokens become
// their names. The result need not be UTF-8. It fails if an id is outside the
// vocabulary.
func (t *Tokenizer) Decode(ids []int32) ([]byte, error) {
	var text []byte
	spaceFirst := t.spaceFirst
	for i, id := range ids {
		if id < 0 || int(id) >= len(t.tokens) {
			return nil, fmt.Errorf("%s: token %d at position %d is outside the vocabulary; expected an id from 0 to %d", t.name, id, i, len(t.tokens)-1)
		}
		at := len(text)
		text = t.appendToken(text, id)
		if spaceFirst && t.ordinary(id) {
			spaceFirst = false
			if bytes.HasPrefix(text[at:], []byte(" ")) {
				text = slices.Delete(text, at, at+1)
			}
		}
	}
	return text, nil
}

// Piece returns the bytes that a token adds to generated text: none for control
// tokens and for ids outside the vocabulary. They need not be whole runes: see
// [Stream].
func (t *Tokenizer) Piece(id int32) []byte { return t.AppendPiece(nil, id) }

// AppendPiece appends the result of Piece to dst. It allocates only if dst must grow.
func (t *Tokenizer) AppendPiece(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= len(t.tokens) || t.types[id] == typeControl || t.types[id] == typeUnknown {
		return dst
	}
	return t.appendToken(dst, id)
}

// ordinary reports whether merging may produce the token.
func (t *Tokenizer) ordinary(id int32) bool {
	switch t.types[id] {
	case typeUnknown, typeControl, typeUserDefined:
		return false
	}
	return true
}

// appendToken appends the bytes that the token stands for.
func (t *Tokenizer) appendToken(dst []byte, id int32) []byte {
	s := t.tokens[id]
	switch t.types[id] {
	case typeUndefined, typeNormal:
		return t.model.spelling.unspell(dst, s)
	case typeByte:
		if b, ok := parseHexByte(s); ok {
			return append(dst, b)
		}
	case typeUserDefined:
		if t.model.spelling.added {
			return t.model.spelling.unspell(dst, s)
		}
	}
	return append(dst, s...)
}
