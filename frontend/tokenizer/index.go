package tokenizer

import "slices"

// index builds the tables that Encode uses.
func (t *Tokenizer) index(c *Config) {
	if t.types == nil {
		t.types = slices.Repeat([]int32{typeNormal}, len(t.tokens))
	}
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
	t.findEnds(c)
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

// turnEnds lists the tokens that end a turn or a text in published models. Files
// often name only one of the tokens that their model uses.
var turnEnds = []string{
	"<|im_end|>",            // Qwen, SmolLM, ChatML
	"<|endoftext|>",         // GPT-2, Qwen, StarCoder
	"<end_of_turn>",         // Gemma
	"<turn|>",               // Gemma 4
	"<|eot_id|>",            // Llama 3
	"<|eom_id|>",            // Llama 3, before a tool's answer
	"<|end_of_text|>",       // Llama 3, Granite
	"<|end|>",               // Phi-3
	"<|return|>",            // gpt-oss
	"<|call|>",              // gpt-oss
	"<EOT>",                 // Refact
	"[EOT]",                 // Kimi
	"<end_of_utterance>",    // SmolVLM
	"<|END_OF_TURN_TOKEN|>", // Command R
	"<｜end▁of▁sentence｜>",   // DeepSeek
}

// findEnds finds the tokens that end generation.
func (t *Tokenizer) findEnds(c *Config) {
	for _, id := range []int{c.EOS, c.EOT, c.EOM} {
		if id >= 0 {
			t.ends = append(t.ends, int32(id))
		}
	}
	for i, s := range t.tokens {
		if s != "" && (s[0] == '<' || s[0] == '[') && slices.Contains(turnEnds, s) {
			t.ends = append(t.ends, int32(i))
		}
	}
	slices.Sort(t.ends)
	t.ends = slices.Compact(t.ends)
}
