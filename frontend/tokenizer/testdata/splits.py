"""Makes splits.json: words of difficult texts by the published splitting
expressions, run by the backtracking engine of the PyPI package regex. It is the
oracle of the hand-written scanners.

    pip install regex && python splits.py > splits.json
"""
import json
import random

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def modern(letters, numbers):
    return (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[" + letters + r"]+|\p{N}" + numbers
            + r"| ?[^\s" + letters + r"\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


EXPRESSIONS = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "qwen2": [modern(r"\p{L}", "")],
    "qwen35": [modern(r"\p{L}\p{M}", "")],
    "llama3": [modern(r"\p{L}", "{1,3}")],
    "tekken": [rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LOW}+|[^\r\n\p{{L}}\p{{N}}]?{UP}+{LOW}*|\p{{N}}|" + TAIL],
    "gpt-4o": [rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LOW}+{CONTRACTION}?|[^\r\n\p{{L}}\p{{N}}]?{UP}+{LOW}*{CONTRACTION}?|\p{{N}}{{1,3}}|" + TAIL],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "bloom": [r" ?[^(\s|.,!?…。，、।۔،)]+"],
    "viking": [r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"],
}

ALPHABET = list("aZéßΩжҖıǅʰªー漢字かカ한अाก็ا٣123½Ⅷ²") + list("'.,!?-_/\\`$+<=>^|~()[]{}@#&*\"…。،—€©☃😀\u0301\ufe0f\u200d\u00ad\x01\x7f")
ALPHABET += [" "] * 12 + ["\n"] * 4 + ["\r"] * 3 + ["\t"] * 2 + list("\u00a0\u3000\u2028\u0085")
ALPHABET += ["'s", "'T", "'re", "'Ve", "'ll", "'LL", "'d", "'M", "'x", "'r", "ABc", "DEF", "  ", "\r\n", "1234567"]


def split(expressions, text):
    words = [text]
    for e in expressions:
        cut = []
        for w in words:
            at = 0
            for m in regex.finditer(e, w):
                cut += [w[at:m.start()], m.group()]
                at = m.end()
            cut.append(w[at:])
        words = [w for w in cut if w]
    return words


rng = random.Random(1)
texts = ["".join(rng.choices(ALPHABET, k=rng.randint(1, 24))) for _ in range(60)]
out = [{"pre": p, "text": t, "words": split(e, t)} for p, e in EXPRESSIONS.items() for t in texts]
print("[\n" + ",\n".join(json.dumps(o, ensure_ascii=True) for o in out) + "\n]")
