package tokenizer

import (
	"bytes"
	"fmt"
	"slices"
)

// A Tokenizer turns text into ids and back. It does not change once made, so
// that any number of goroutines may use it.
type Tokenizer struct {
	name     string // of the file, for messages
	model    *model
	splitter *splitter

	tokens []string  // as the file spells them
	types  []int32   // one per token
	scores []float32 // one per token, nil where the model has none

	ids     map[string]int32 // ordinary tokens
	ranks   map[string]int32 // merges, "left right"
	byteIDs [256]int32       // the token of each byte, −1 for none
	always  *specials        // user-defined tokens
	parsed  *specials        // these and control tokens

	bos        int32 // −1 for none
	unk        int32 // stands for a byte without a token; −1 for none
	ends       []int32
	addBOS     bool
	spaceFirst bool
	warnings   []string
}

// Options say how a text is read.
type Options struct {
	BOS          bool // begin with the BOS token if the model wants one
	ParseSpecial bool // let control tokens in the text be such; never for what users write in a chat
}

// Size returns the number of tokens.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// BOS returns the token that texts begin with, and whether the model has one.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

// EndOfGeneration returns the tokens that end generation, in rising order: the
// end of a text, of a turn, and of a message, as the file names them, and the
// known ends of turns in the vocabulary.
func (t *Tokenizer) EndOfGeneration() []int32 { return slices.Clone(t.ends) }

// Warnings returns what is doubtful about the file, one line each.
func (t *Tokenizer) Warnings() []string { return slices.Clone(t.warnings) }

// Encode returns the ids of text, in time linear in its length but for a
// logarithm. Text need not be UTF-8: what is not is taken byte by byte.
//
// A BOS token that the text begins with, where ParseSpecial is on, stands for
// the one that the model wants. Where the model wants texts to begin with a
// space, the first ordinary text gets one, also after special tokens.
//
// An error means that the vocabulary has no token for some byte of the text and
// none for the unknown. Vocabularies that were trained without some rare bytes
// are common.
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

// An encoder holds the state of one Encode.
type encoder struct {
	t          *Tokenizer
	ids        []int32
	err        error
	spaceFirst bool // the next ordinary text begins with a space

	word  []byte // spelled
	at    int    // where it begins in the text
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

// Decode returns the text of ids, which is that of Encode again, byte for byte,
// where no unknown token stands in it and it has no ▁ of its own. Control tokens
// give their names. The result need not be UTF-8. An error names an id that is
// outside the vocabulary.
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

// Piece returns the bytes of one token as generated text shows them: none for
// control tokens and for ids outside the vocabulary. They need not be whole
// runes; see [Stream].
func (t *Tokenizer) Piece(id int32) []byte { return t.AppendPiece(nil, id) }

// AppendPiece appends to dst what Piece returns. It allocates nothing where there is room.
func (t *Tokenizer) AppendPiece(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= len(t.tokens) || t.types[id] == typeControl || t.types[id] == typeUnknown {
		return dst
	}
	return t.appendToken(dst, id)
}

// ordinary says whether the token comes from merging, not from special tokens.
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
