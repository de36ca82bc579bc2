package tokenizer

import (
	"bytes"
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
// that are not are encoded one by one.
//
// No second BOS token is added if ParseSpecial is on and the text begins with one.
// If the model requires a space at the beginning of texts, it is added to the
// first ordinary text, also after special tokens.
//
// It fails if the vocabulary has neither a token for some byte of the text nor an
// unknown token. Vocabularies without some rare bytes are common.
func (t *Tokenizer) Encode(text []byte, o Options) ([]int32, error) {
	e := encoder{t: t, spaceFirst: t.spaceFirst}
	special := t.always
	if o.ParseSpecial {
		special = t.parsed
	}
	from := 0
	for at, token := range special.in(text) {
		e.ordinary(text[from:at], from)
		e.ids = append(e.ids, token.id)
		from = at + token.length
	}
	e.ordinary(text[from:], from)
	if e.err != nil {
		return nil, e.err
	}
	if o.BOS && t.addBOS && (len(e.ids) == 0 || e.ids[0] != t.bos) {
		e.ids = slices.Insert(e.ids, 0, t.bos)
	}
	return e.ids, nil
}

// An encoder holds the state of one call of Encode.
type encoder struct {
	t          *Tokenizer
	ids        []int32
	err        error
	spaceFirst bool // the next ordinary text begins with a space

	word  []byte // spelled
	at    int    // its offset in the text
	key   []byte
	spans []span
	pairs pairHeap
}

// ordinary appends the ids of text that has no special tokens and begins at byte at.
func (e *encoder) ordinary(text []byte, at int) {
	if len(text) == 0 {
		return
	}
	if e.spaceFirst {
		text = append([]byte{' '}, text...)
		at--
		e.spaceFirst = false
	}
	split(e.t.splitter.rules, text, func(word []byte) {
		e.at, at = at, at+len(word)
		e.word = e.t.model.spelling.spell(e.word[:0], word)
		if whole := e.t.splitter.whole; whole != nil && whole(word) {
			if id, ok := e.t.ids[string(e.word)]; ok {
				e.ids = append(e.ids, id)
				return
			}
		}
		e.merge()
		for i := int32(0); i >= 0; i = e.spans[i].next {
			e.lookUp(int(e.spans[i].lo), int(e.spans[i].hi))
		}
	})
}

// lookUp appends the token of a span of the word, or the tokens of its bytes.
func (e *encoder) lookUp(lo, hi int) {
	spelled := e.word[lo:hi]
	if id, ok := e.t.ids[string(spelled)]; ok {
		e.ids = append(e.ids, id)
		return
	}
	for i, b := range e.t.model.spelling.unspell(nil, string(spelled)) {
		id := e.t.byteIDs[b]
		if id < 0 {
			id = e.t.unk
		}
		if id < 0 && e.err == nil {
			at := e.at + len(e.t.model.spelling.unspell(nil, string(e.word[:lo]))) + i
			e.err = fmt.Errorf("%s: the vocabulary has no token for the byte 0x%02X; found it at offset %d of the text, expected text without it: leave out the character that it is part of", e.t.name, b, at)
		}
		e.ids = append(e.ids, id)
	}
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
