package tokenizer

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A spelling is the way in which a vocabulary writes text.
type spelling struct {
	// spell appends the spelling of text to dst. Each byte is spelled by itself.
	spell func(dst, text []byte) []byte
	// unspell appends the text that a token spells to dst.
	unspell func(dst []byte, token string) []byte
	// byteToken is the token for a single byte.
	byteToken func(b byte) string
	// added means that user-defined tokens are spelled too, not stored as plain text.
	added bool
}

// byteLevel writes every byte as a printable letter, so that merges, which are
// stored as text, can contain any bytes (GPT-2).
var byteLevel = spelling{
	spell: func(dst, text []byte) []byte {
		for _, b := range text {
			dst = utf8.AppendRune(dst, byteLetters[b])
		}
		return dst
	},
	// Letters that stand for no byte are copied: added tokens are not spelled.
	unspell: func(dst []byte, token string) []byte {
		for i := 0; i < len(token); {
			r, w := utf8.DecodeRuneInString(token[i:])
			if r < rune(len(letterBytes)) && letterBytes[r] >= 0 {
				dst = append(dst, byte(letterBytes[r]))
			} else {
				dst = append(dst, token[i:i+w]...)
			}
			i += w
		}
		return dst
	},
	byteToken: func(b byte) string { return string(byteLetters[b]) },
}

// byteLetters holds the letters of byteLevel. A byte that is a visible Latin-1
// character stands for itself; the others are the letters from U+0100 on, in
// order.
var byteLetters = func() (letters [256]rune) {
	next := rune(0x100)
	for b := range letters {
		if '!' <= b && b <= '~' || 0xA1 <= b && b <= 0xFF && b != 0xAD {
			letters[b] = rune(b)
		} else {
			letters[b] = next
			next++
		}
	}
	return letters
}()

// letterBytes is the inverse of byteLetters, with −1 for other letters.
var letterBytes = func() (bytes [0x144]int16) {
	for r := range bytes {
		bytes[r] = -1
	}
	for b, r := range byteLetters {
		bytes[r] = int16(b)
	}
	return bytes
}()

// escaped writes a space as ▁ (SentencePiece).
var escaped = spelling{
	spell: func(dst, text []byte) []byte {
		dst = slices.Grow(dst, len(text)+bytes.Count(text, []byte(" "))*(len("▁")-len(" ")))
		for {
			before, after, found := bytes.Cut(text, []byte(" "))
			dst = append(dst, before...)
			if !found {
				return dst
			}
			dst, text = append(dst, "▁"...), after
		}
	},
	unspell: func(dst []byte, token string) []byte {
		for {
			before, after, found := strings.Cut(token, "▁")
			dst = append(dst, before...)
			if !found {
				return dst
			}
			dst, token = append(dst, ' '), after
		}
	},
	byteToken: hexByte,
	added:     true,
}

// hexByte is the token for b in vocabularies with byte fallback, <0x0A>.
func hexByte(b byte) string {
	const hex = "0123456789ABCDEF"
	return "<0x" + hex[b>>4:b>>4+1] + hex[b&15:b&15+1] + ">"
}

// parseHexByte is the inverse of hexByte.
func parseHexByte(token string) (b byte, ok bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(v), err == nil
}
