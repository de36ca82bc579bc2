package tokenizer

import (
	"slices"
	"strings"
)

// A splitter cuts text into words, before byte-level BPE merges within each.
type splitter struct {
	names  string                 // values of tokenizer.ggml.pre, separated by spaces
	rules  []rule                 // applied in sequence
	whole  func(word []byte) bool // words that become one token if there is such a token, without merging; nil: none
	addBOS bool                   // the default of tokenizer.ggml.add_bos_token
}

// defaultSplitter is the default of tokenizer.ggml.pre.
const defaultSplitter = "default"

// splitters follows the pre_tokenizer sections of the tokenizer.json files that
// the models were published with. default and falcon follow llama.cpp instead,
// with which files of these names were tested.
var splitters = []splitter{
	{
		names: defaultSplitter,
		rules: []rule{find(many(in(punct | asciiSymbol))), find(gpt2Words), find(many(in(number))), find(digits3)},
	},
	{
		names: "falcon",
		rules: []rule{find(many(in(punct | asciiSymbol | backquote))), find(gpt2Words), find(digits3)},
	},
	{
		names: "gpt-2 mpt olmo phi-2 jais exaone4 gigachat modern-bert trillion granite-docling",
		rules: []rule{find(gpt2Words)},
	},
	{
		names: "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
		rules: []rule{find(one(in(number))), find(gpt2Words)},
	},
	{
		names: "qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan grok-2",
		rules: []rule{find(modernWords(letter, 1))},
	},
	{
		names: "qwen35",
		rules: []rule{find(modernWords(letter|mark, 1))},
	},
	{
		names:  "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral lfm2",
		rules:  []rule{find(modernWords(letter, 3))},
		whole:  everyWord,
		addBOS: true,
	},
	{
		names: "dbrx smaug-bpe chatglm-bpe",
		rules: []rule{find(modernWords(letter, 3))},
	},
	{
		names: "glm4",
		rules: []rule{find(modernWords(letter, 3))},
		whole: everyWord,
	},
	{
		names:  "tekken",
		rules:  []rule{find(casedWords(never, 1))},
		whole:  everyWord,
		addBOS: true,
	},
	{
		names: "gpt-4o llama4",
		rules: []rule{find(casedWords(anyContraction, 3))},
	},
	{
		names: "deepseek-llm",
		rules: []rule{
			find(one(in(newline))),
			find(lead(in(space), many(deepseekLetters))),
			find(lead(in(space), many(inRanges('!', '/', ':', '~', '！', '／', '：', '～', '‘', '‟', '\u3000', '。')))),
			finalSpaces,
			find(many(deepseekCJK)),
			find(many(in(number))),
		},
	},
	{
		names: "deepseek-coder",
		rules: []rule{
			find(one(in(newline))),
			find(lead(in(space), many(in(letter)))),
			find(lead(in(space), many(in(punct)))),
			find(many(deepseekCJK)),
			find(one(in(number))),
		},
	},
	{
		names: "deepseek-v3 hunyuan-dense joyai-llm",
		rules: []rule{
			find(upTo(3, in(number))),
			find(many(inRanges(0x4E00, 0x9FA5, 0x3040, 0x30FF))), // Han, kana
			find(either(
				after(inRanges('!', '/', ':', '@', '[', '`', '{', '~'), many(inRanges('A', 'Z', 'a', 'z'))),
				lead(in(^(newline|letter|punct|symbol)), many(in(letter|mark))),
				trail(lead(in(blank), many(in(punct|symbol))), in(newline)),
				linesEnd, spaces,
			)),
		},
	},
	{
		names: "bloom poro-chat gpt3-finnish",
		rules: []rule{find(bloomWords)},
	},
	{
		names: "viking",
		rules: []rule{find(bloomWords), find(one(in(number)))},
	},
}

// gpt2Words is the expression of GPT-2:
// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
var gpt2Words = either(
	contraction,
	lead(in(blank), many(in(letter))),
	lead(in(blank), many(in(number))),
	lead(in(blank), many(in(^(letter|number|space)))),
	spaces,
)

// modernWords is the expression of GPT-4 and later models. letters is the class L of a word's
// runes, digits the most digits of a number:
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?L+|\p{N}{1,digits}|
// ?[^\sL\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func modernWords(letters class, digits int) matcher {
	return either(
		anyContraction,
		lead(in(^(letter|number|newline)), many(in(letters))),
		upTo(digits, in(number)),
		trail(lead(in(blank), many(in(^(letters|number|space)))), in(newline)),
		linesEnd, spaces,
	)
}

// casedWords is the expression of GPT-4o, in which a capital begins a word. end matches the
// optional end of a word, digits is the most digits of a number. With U for
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and L for [\p{Ll}\p{Lm}\p{Lo}\p{M}]:
// [^\r\n\p{L}\p{N}]?U*L+end?|[^\r\n\p{L}\p{N}]?U+L*end?|\p{N}{1,digits}|
// ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func casedWords(end matcher, digits int) matcher {
	capital := in(letter&^lower | mark)
	small := in(letter&^(upper|title) | mark)
	before := in(^(letter | number | newline))
	return either(
		suffix(lead(before, anyThenSome(capital, small)), end),
		suffix(lead(before, trail(many(capital), small)), end),
		upTo(digits, in(number)),
		trail(lead(in(blank), many(in(^(letter|number|space)))), inString("\r\n/")),
		linesEnd, spaces,
	)
}

// bloomWords is  ?[^(\s|.,!?…。，、।۔،)]+ where the parentheses and the bar are
// members of the set.
var bloomWords = lead(in(blank), many(neither(in(space), inString("(|.,!?…。，、।۔،)"))))

// deepseekCJK is Han, Hangul syllables, and all from U+0800 up to Han.
var deepseekCJK = inRanges(0x0800, 0x9FA5, 0xAC00, 0xD7FF)

// deepseekLetters are the cased letters as DeepSeek LLM lists them. They are not
// a Unicode class: Georgian and later additions are missing.
var deepseekLetters = inRanges(
	'A', 'Z', 'a', 'z', 0x00B5, 0x00B5, 0x00C0, 0x00D6, 0x00D8, 0x00F6, 0x00F8, 0x01BA,
	0x01BC, 0x01BF, 0x01C4, 0x0293, 0x0295, 0x02AF, 0x0370, 0x0373, 0x0376, 0x0377,
	0x037B, 0x037D, 0x037F, 0x037F, 0x0386, 0x0386, 0x0388, 0x038A, 0x038C, 0x038C,
	0x038E, 0x03A1, 0x03A3, 0x03F5, 0x03F7, 0x0481, 0x048A, 0x052F, 0x0531, 0x0556,
	0x10A0, 0x10C5, 0x13A0, 0x13F5, 0x13F8, 0x13FD, 0x1C90, 0x1CBA, 0x1CBD, 0x1CBF,
	0x1D00, 0x1D2B, 0x1D6B, 0x1D77, 0x1D79, 0x1D9A, 0x1E00, 0x1F15, 0x1F18, 0x1F1D,
	0x1F20, 0x1F45, 0x1F48, 0x1F4D, 0x1F50, 0x1F57, 0x1F59, 0x1F59, 0x1F5B, 0x1F5B,
	0x1F5D, 0x1F5D, 0x1F5F, 0x1F7D, 0x1F80, 0x1FB4, 0x1FB6, 0x1FBC, 0x1FBE, 0x1FBE,
	0x1FC2, 0x1FC4, 0x1FC6, 0x1FCC, 0x1FD0, 0x1FD3, 0x1FD6, 0x1FDB, 0x1FE0, 0x1FEC,
	0x1FF2, 0x1FF4, 0x1FF6, 0x1FFC, 0x2102, 0x2102, 0x2107, 0x2107, 0x210A, 0x2113,
	0x2115, 0x2115, 0x2119, 0x211D, 0x2124, 0x2124, 0x2126, 0x2126, 0x2128, 0x2128,
	0x212A, 0x212D, 0x212F, 0x2134, 0x2139, 0x2139, 0x213C, 0x213F, 0x2145, 0x2149,
	0x214E, 0x214E, 0x2183, 0x2184, 0x2C00, 0x2C7B, 0x2C7E, 0x2CE4, 0x2CEB, 0x2CEE,
	0x2CF2, 0x2CF3, 0xA640, 0xA66D, 0xA680, 0xA69B, 0xA722, 0xA76F, 0xA771, 0xA787,
	0xA78B, 0xA78E, 0xAB70, 0xABBF, 0xFB00, 0xFB06, 0xFB13, 0xFB17, 0xFF21, 0xFF3A,
	0xFF41, 0xFF5A, 0x10400, 0x1044F, 0x104B0, 0x104D3, 0x104D8, 0x104FB, 0x10C80, 0x10CB2,
	0x10CC0, 0x10CF2, 0x118A0, 0x118DF, 0x1E900, 0x1E943,
)

func everyWord([]byte) bool { return true }

func findSplitter(name string) (*splitter, bool) {
	for i := range splitters {
		if slices.Contains(strings.Fields(splitters[i].names), name) {
			return &splitters[i], true
		}
	}
	return nil, false
}

func splitterNames() []string {
	var names []string
	for _, s := range splitters {
		names = append(names, strings.Fields(s.names)...)
	}
	slices.Sort(names)
	return names
}
