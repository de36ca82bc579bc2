"""Evaluates a demo model by its output: perplexity, faults, and the stories themselves.

    python check_demo.py MODEL.gguf [MODEL.gguf …] [--stories N] [--prompt TEXT]

Reads GGUF files with gguf and computes in numpy, independently of the model in train.py.
The grammar and the byte-pair encoding are shared. For each model it prints the perplexity
on held-out stories, one greedy story, N stories sampled at temperature 0.8, and how many
of these have a fault that can be counted: no end, a name that was not introduced, a wrong
pronoun.
"""

import argparse
import itertools
import re

import gguf
import numpy as np

import bpe
import stories

HELD_OUT_SEED = 2_000_003
NAMES = {**dict.fromkeys(stories.GIRLS, "she"), **dict.fromkeys(stories.BOYS, "he")}
PRONOUNS = {"she": {"she", "her"}, "he": {"he", "his", "him"}}
ELDERS = {e[0] for e in stories.ELDERS}


class Model:
    """A qwen2 GGUF file, with its weights dequantized to float32."""

    def __init__(self, path):
        r = gguf.GGUFReader(path)
        get = {k: f.contents() for k, f in r.fields.items()}
        a = get["general.architecture"]
        self.blocks, self.heads, self.kv_heads = (
            get[f"{a}.{k}"] for k in ("block_count", "attention.head_count", "attention.head_count_kv"))
        self.context = get[f"{a}.context_length"]
        self.base, self.eps = get[f"{a}.rope.freq_base"], get[f"{a}.attention.layer_norm_rms_epsilon"]
        merges = [m.split(" ") for m in get["tokenizer.ggml.merges"]]
        self.tokenizer = bpe.Tokenizer(get["tokenizer.ggml.tokens"], merges)
        self.eos = get["tokenizer.ggml.eos_token_id"]
        self.w = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32) for t in r.tensors}

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.eps) * self.w[name]

    def rope(self, x, start):
        """Rotates [T, heads, head_dim], the first row at position start."""
        t, _, d = x.shape
        angle = (start + np.arange(t))[:, None, None] * self.base ** (-np.arange(0, d, 2) / d)
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        a, b = x[..., : d // 2], x[..., d // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, ids, cache):
        """Logits [T, vocab] of ids that follow the tokens in cache. Adds the ids to cache."""
        x = self.w["token_embd.weight"][ids]
        t = len(ids)
        for i in range(self.blocks):
            def linear(name, x, p=f"blk.{i}."):
                return x @ self.w[p + name + ".weight"].T + self.w.get(p + name + ".bias", np.float32(0))

            past_k, past_v = cache.get(i, (np.zeros((0,), np.float32),) * 2)
            start = len(past_k)
            n = self.norm(x, f"blk.{i}.attn_norm.weight")
            d = x.shape[1] // self.heads
            q = self.rope(linear("attn_q", n).reshape(t, self.heads, d), start)
            k = self.rope(linear("attn_k", n).reshape(t, self.kv_heads, d), start)
            v = linear("attn_v", n).reshape(t, self.kv_heads, d)
            if start:
                k, v = np.concatenate([past_k, k]), np.concatenate([past_v, v])
            cache[i] = k, v
            visible = np.arange(start + t)[None] <= start + np.arange(t)[:, None]
            mixed = np.empty_like(q)
            for h in range(self.heads):
                g = h * self.kv_heads // self.heads
                s = np.where(visible, q[:, h] @ k[:, g].T / np.sqrt(d), -np.inf)
                s = np.exp(s - s.max(-1, keepdims=True))
                mixed[:, h] = s / s.sum(-1, keepdims=True) @ v[:, g]
            x = x + linear("attn_output", mixed.reshape(t, -1))
            n = self.norm(x, f"blk.{i}.ffn_norm.weight")
            gate = linear("ffn_gate", n)
            x = x + linear("ffn_down", gate / (1 + np.exp(-gate)) * linear("ffn_up", n))
        head = self.w.get("output.weight", self.w["token_embd.weight"])
        return self.norm(x, "output_norm.weight") @ head.T

    def tell(self, prompt, temperature, rng):
        """Continues prompt to its end. Returns the whole text, and whether the story ended."""
        ids, cache = self.tokenizer.encode(prompt), {}
        new = ids
        while len(ids) < self.context:
            logits = self.forward(new, cache)[-1].astype(np.float64)
            if temperature:
                p = np.exp((logits - logits.max()) / temperature)
                new = [int(rng.choice(len(p), p=p / p.sum()))]
            else:
                new = [int(logits.argmax())]
            if new[0] == self.eos:
                return self.tokenizer.decode(ids), True
            ids = ids + new
        return self.tokenizer.decode(ids), False

    def nats(self, count):
        """Mean nats per token over held-out stories, and the number of tokens."""
        total = tokens = 0
        for text in itertools.islice(stories.stories(HELD_OUT_SEED), count):
            ids = self.tokenizer.encode(text) + [self.eos]
            logits = self.forward(ids[:-1], {}).astype(np.float64)
            top = logits.max(-1)
            norm = top + np.log(np.exp(logits - top[:, None]).sum(-1))
            total += (norm - logits[np.arange(len(ids) - 1), ids[1:]]).sum()
            tokens += len(ids) - 1
        return total / tokens, tokens


def faults(text, ended):
    """The faults of a story, by the rules that every story of the grammar follows: it ends;
    it has a hero and at most one friend; if no elder appears, all pronouns are the hero's."""
    found = [] if ended else ["no end"]
    words = re.findall(r"[A-Za-z]+", text)
    names = list(dict.fromkeys(w for w in words if w in NAMES))
    if not names:
        return found + ["no hero"]
    if len(names) > 2:
        found.append("names " + " ".join(names))
    lower = {w.lower() for w in words}
    if not lower & ELDERS:
        wrong = lower & PRONOUNS["he" if NAMES[names[0]] == "she" else "she"]
        if wrong:
            found.append(f"{names[0]} is {' '.join(sorted(wrong))}")
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("models", nargs="+")
    p.add_argument("--stories", type=int, default=20)
    p.add_argument("--held-out", type=int, default=100)
    p.add_argument("--prompt", default="Once upon a time")
    a = p.parse_args()
    for path in a.models:
        m = Model(path)
        nats, tokens = m.nats(a.held_out)
        print(f"== {path}: {nats:.4f} nats per token, perplexity {np.exp(nats):.4f} on {tokens} held-out tokens")
        print("(greedy) " + m.tell(a.prompt, 0, None)[0] + "\n")
        bad = 0
        for seed in range(a.stories):
            text, ended = m.tell(a.prompt, 0.8, np.random.default_rng(seed))
            wrong = faults(text, ended)
            bad += bool(wrong)
            print(f"({seed}{': ' + '; '.join(wrong) if wrong else ''}) {text}\n")
        print(f"== {path}: {bad} of {a.stories} sampled stories with a fault\n")


if __name__ == "__main__":
    main()
