"""Makes gpt-neox.ids: what the strings of gpt-2's fixture are in the vocabulary of gpt-neox, for
which llama.cpp publishes none. The splitting is llama.cpp's default, its expressions run by
Oniguruma, and the merging that of the PyPI package tokenizers: neither shares code with ours.

    pip install tokenizers==0.21.4 gguf==0.19.0
    python gpt-neox.py FOLDER > gpt-neox.ids    # FOLDER: the vocabularies that make models fetches
"""
import pathlib
import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

EXPRESSIONS = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
USER_DEFINED = 4
MARK = "\n__ggml_vocab_test__\n"


def tokenizer(path):
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(e), "isolated") for e in EXPRESSIONS]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.add_tokens([AddedToken(s, normalized=False) for s, kind in zip(tokens, types) if kind == USER_DEFINED])
    return t


folder = pathlib.Path(sys.argv[1])
strings = (folder / "ggml-vocab-gpt-2.gguf.inp").read_bytes().decode().removesuffix(MARK).split(MARK)
t = tokenizer(folder / "ggml-vocab-gpt-neox.gguf")
for s in strings:
    print(*t.encode(s).ids)
