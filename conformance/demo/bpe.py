"""Byte-level byte-pair encoding (Sennrich et al., 2016): training and encoding.

Tokens are written as in GPT-2: each byte is one printable character, so that a
vocabulary is a list of strings. Text is first split into words, with the rule of the
qwen2 splitter restricted to ASCII. The stories contain only ASCII.
"""

import collections
import re

END_OF_TEXT = "<|endoftext|>"

WORD = re.compile(
    r"'(?i:s|t|re|ve|m|ll|d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_chars():
    """The character for each of the 256 bytes: itself if printable, else from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(rest)}


BYTE_CHAR = byte_chars()
CHAR_BYTE = {c: b for b, c in BYTE_CHAR.items()}


def train(texts, size):
    """Learns up to `size` tokens, including all bytes and the end of text.

    Returns (tokens, merges). The most frequent pair is merged first. Among equally
    frequent pairs the first in sort order is taken, so the result depends only on texts.
    """
    counts = collections.Counter(w for t in texts for w in WORD.findall(t))
    words = [([BYTE_CHAR[b] for b in w.encode()], n) for w, n in sorted(counts.items())]
    tokens, merges = list(BYTE_CHAR.values()), []
    while len(tokens) < size - 1:
        pairs = collections.Counter()
        for parts, n in words:
            for pair in zip(parts, parts[1:]):
                pairs[pair] += n
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        for parts, _ in words:
            join(parts, best)
        merges.append(best)
        tokens.append("".join(best))
    return tokens + [END_OF_TEXT], merges


def join(parts, pair):
    """Merges every occurrence of pair in parts, in place, from the left."""
    i = 0
    while i < len(parts) - 1:
        if (parts[i], parts[i + 1]) == pair:
            parts[i:i + 2] = ["".join(pair)]
        i += 1


class Tokenizer:
    """Encodes and decodes with a trained vocabulary."""

    def __init__(self, tokens, merges):
        self.tokens = tokens
        self.ids = {t: i for i, t in enumerate(tokens)}
        self.rank = {tuple(m): i for i, m in enumerate(merges)}
        self.eos = self.ids[END_OF_TEXT]
        self.known = {}  # word → ids; a story repeats its words

    def word(self, w):
        parts = [BYTE_CHAR[b] for b in w.encode()]
        while len(parts) > 1:
            best = min(zip(parts, parts[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
            if best not in self.rank:
                break
            join(parts, best)
        return [self.ids[p] for p in parts]

    def encode(self, text):
        out = []
        for w in WORD.findall(text):
            if w not in self.known:
                self.known[w] = self.word(w)
            out += self.known[w]
        return out

    def decode(self, ids):
        chars = "".join(self.tokens[i] for i in ids if i != self.eos)
        return bytes(CHAR_BYTE[c] for c in chars).decode(errors="replace")
