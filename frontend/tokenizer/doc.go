// Package tokenizer converts text to token ids and back. All it needs is the
// metadata of a GGUF file.
//
// It supports three vocabulary models, the values of tokenizer.ggml.model:
//
//   - gpt2: byte-level BPE (Radford et al. 2019, "Language Models are
//     Unsupervised Multitask Learners"). Text is split into words by the rules
//     that tokenizer.ggml.pre names, each byte is written as a printable
//     letter, and adjacent parts are merged in the order of the merges list
//     (Sennrich et al. 2016, arXiv:1508.07909).
//   - llama: SentencePiece BPE (Kudo and Richardson 2018, arXiv:1808.06226).
//     Spaces are written as ▁, adjacent parts are merged in the order of the
//     score of the resulting token, and characters that the vocabulary lacks
//     become byte tokens.
//   - gemma4: the spelling of SentencePiece with a merges list.
//
// All three use one pipeline, see [model]: extract special tokens, split into
// words, spell, merge, look up tokens, and fall back to bytes.
//
// For streamed output, [Stream] holds back incomplete UTF-8, and [StopMatcher]
// holds back text that may be the beginning of a stop string.
//
// The package knows no architecture, graph, plan or chat template. It imports
// gguf and nothing else of this module.
package tokenizer
