// Package tokenizer turns text into token ids and back, from nothing but the
// metadata of a GGUF file.
//
// It owns three vocabulary models, the values of tokenizer.ggml.model:
//
//   - gpt2: byte-level BPE (Radford et al. 2019, "Language Models are
//     Unsupervised Multitask Learners"). Text is split into words by the rules
//     that tokenizer.ggml.pre names, bytes are spelled as printable letters,
//     and neighbours merge in the order of the merges list (Sennrich et al.
//     2016, arXiv:1508.07909).
//   - llama: SentencePiece BPE (Kudo and Richardson 2018, arXiv:1808.06226).
//     Spaces are spelled ▁, neighbours merge by the score of what they form,
//     and what the vocabulary lacks is written as bytes.
//   - gemma4: SentencePiece spelling with a merges list.
//
// All three are one pipeline, see [model]: cut out special tokens, split into
// words, spell, merge, look up, and fall back to bytes.
//
// The package also owns what streaming needs: [Stream] holds back incomplete
// UTF-8, [StopMatcher] holds back what may become a stop string.
//
// It knows no architecture, graph, plan or chat template, and of this module it
// may import only gguf.
package tokenizer
