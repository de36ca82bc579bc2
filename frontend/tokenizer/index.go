package tokenizer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// index builds the tables that Encode uses.
func (t *Tokenizer) index(c *Config) {
	if t.types == nil {
		t.types = slices.Repeat([]int32{typeNormal}, len(t.tokens))
	}
	t.findEnds(c)
	// Backwards, so that the first of equal tokens wins.
	t.ids = make(map[string]int32, len(t.tokens))
	always, parsed := map[string]int32{}, map[string]int32{}
	for i, s := range slices.Backward(t.tokens) {
		id := int32(i)
		switch t.types[i] {
		case typeUndefined, typeNormal:
			// Merging may produce no other tokens, so that no text becomes a
			// control token by accident.
			t.ids[s] = id
			t.longest = max(t.longest, len(s))
		case typeUserDefined:
			raw := string(t.appendToken(nil, id))
			always[raw], parsed[raw] = id, id
		case typeUnknown, typeControl:
			parsed[s] = id
		}
	}
	t.always, t.parsed = newSpecials(always), newSpecials(parsed)
	if t.unk >= 0 && t.types[t.unk] == typeControl {
		// Models derived from GPT-2 name their end-of-text token, which ordinary
		// text must not produce.
		t.unk = -1
	}
	t.findBytes()
	t.ranks = make(map[string]int32, len(c.Merges))
	for i, s := range slices.Backward(c.Merges) {
		t.ranks[s] = int32(i) // merges are their own keys, "left right"
	}
}

// findBytes finds the token of each byte, for text that no other token covers.
func (t *Tokenizer) findBytes() {
	typed := map[string]int32{}
	for i, s := range t.tokens {
		if t.types[i] == typeByte {
			typed[s] = int32(i)
		}
	}
	for b := range t.byteIDs {
		s := t.model.spelling.byteToken(byte(b))
		id, ok := typed[s]
		if !ok {
			id, ok = t.ids[s]
		}
		if !ok {
			id = -1
		}
		t.byteIDs[b] = id
	}
}

// controls lists the control tokens of published models whose meaning follows from their name. A value of true
// means that the token ends a turn, a text or a file: generation ends there. Files often name only one of the
// tokens that their model uses, and some type them as normal text. llama.cpp knows the same names.
var controls = map[string]bool{
	"<|im_end|>":            true, // Qwen, SmolLM, ChatML
	"<|endoftext|>":         true, // GPT-2, Qwen, StarCoder
	"<end_of_turn>":         true, // Gemma
	"<turn|>":               true, // Gemma 4
	"<|tool_response>":      true,
	"<eos>":                 true,
	"<|eot_id|>":            true, // Llama 3
	"<|eom_id|>":            true, // Llama 3, before a tool's answer
	"<|end_of_text|>":       true, // Llama 3, Granite
	"<|end|>":               true, // Phi-3
	"<|return|>":            true, // gpt-oss
	"<|call|>":              true,
	"<|calls|>":             true,
	"<|flush|>":             true,
	"<EOT>":                 true, // Refact
	"_<EOT>":                true,
	"▁<EOT>":                true, // CodeLlama
	"[EOT]":                 true, // Kimi
	"[EOS]":                 true,
	"<end_of_utterance>":    true, // SmolVLM
	"<|END_OF_TURN_TOKEN|>": true, // Command R
	"<｜end▁of▁sentence｜>":   true, // DeepSeek

	// Fill in the middle: padding, the next file and the next repository end the text.
	"<|fim_pad|>":   true, // Qwen
	"<fim_pad>":     true, // StarCoder
	"<fim-pad>":     true, // Granite
	"<PAD>":         true,
	"[PAD]":         true,
	"<|file_sep|>":  true, // Qwen
	"<|repo_name|>": true,
	"<|fim_repo|>":  true,
	"<fim-repo>":    true,
	"<reponame>":    true, // StarCoder
	"<REPO>":        true,

	"<|fim_prefix|>":  false,
	"<|fim_suffix|>":  false,
	"<|fim_middle|>":  false,
	"<fim_prefix>":    false,
	"<fim_suffix>":    false,
	"<fim_middle>":    false,
	"<fim-prefix>":    false,
	"<fim-suffix>":    false,
	"<fim-middle>":    false,
	"<｜fim▁begin｜>":   false, // DeepSeek
	"<｜fim▁hole｜>":    false,
	"<｜fim▁end｜>":     false,
	"<PRE>":           false,
	"<SUF>":           false,
	"<MID>":           false,
	"▁<PRE>":          false, // CodeLlama
	"▁<SUF>":          false,
	"▁<MID>":          false,
	"<|code_prefix|>": false, // GLM
	"<|code_suffix|>": false,
	"<|code_middle|>": false,
	"<|prefix|>":      false,
	"<|suffix|>":      false,
	"<|middle|>":      false,
}

// htmlEnd ends a text in models whose vocabulary types it as a control token. In others it is a tag of
// HTML, and ends nothing there, unlike in llama.cpp.
const htmlEnd = "</s>"

// findEnds finds the tokens that end generation, and corrects the types of control tokens that are typed
// as normal text.
func (t *Tokenizer) findEnds(c *Config) {
	var wrong []string
	correct := func(id int) {
		if t.types[id] != typeNormal && t.types[id] != typeUndefined {
			return
		}
		if len(wrong) == 0 {
			t.types = slices.Clone(t.types) // they are the caller's
		}
		t.types[id] = typeControl
		wrong = append(wrong, strconv.Quote(t.tokens[id]))
	}
	for _, i := range c.ends() {
		if id := *i.id; id >= 0 {
			t.ends = append(t.ends, int32(id))
			if marked(t.tokens[id]) {
				correct(id)
			}
		}
	}
	for i, s := range t.tokens {
		if !marked(s) {
			continue
		}
		ends, known := controls[s]
		if known {
			correct(i)
		}
		if ends || s == htmlEnd && t.types[i] == typeControl {
			t.ends = append(t.ends, int32(i))
		}
	}
	slices.Sort(t.ends)
	t.ends = slices.Compact(t.ends)
	if n := len(wrong); n > 0 {
		t.warnings = append(t.warnings, fmt.Sprintf("%s: %d tokens are typed as normal text, expected control tokens: %s; they are taken as control tokens", keyTypes, n, strings.Join(wrong[:min(n, 8)], ", ")))
	}
}

// marked reports whether a token looks like a control token: it begins and ends with < >, or [ ], perhaps after a space.
func marked(s string) bool {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "_"), "▁")
	return len(s) > 2 && (s[0] == '<' && s[len(s)-1] == '>' || s[0] == '[' && s[len(s)-1] == ']')
}

// Controls returns the control tokens of that name. They add no text to generated text.
func (t *Tokenizer) Controls(name string) []int32 {
	var ids []int32
	for i, s := range t.tokens {
		if s == name && t.types[i] == typeControl {
			ids = append(ids, int32(i))
		}
	}
	return ids
}
