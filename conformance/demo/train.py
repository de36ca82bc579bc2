"""Trains the demo model from scratch on the stories, with JAX on the CPU.

    python train.py OUT.npz [--steps N] [--seed S]

Matrices are trained with Muon (momentum made orthogonal by Newton-Schulz steps; Jordan et
al., 2024), which needs about half as many steps here as AdamW. Embeddings, biases and
norms are trained with Adam. Both learning rates warm up, stay constant, and decay linearly
to zero, so that a run can be extended: if OUT.npz exists, training continues from its
step. OUT.npz has the float32 weights under their GGUF names, the tokens, the merges, and
the state of both optimizers.
"""

import argparse
import itertools
import os
import time

import jax
import jax.numpy as jnp
import numpy as np

import bpe
import stories
from config import CONFIG as C

WARM_UP, MATRIX_RATE, OTHER_RATE, DECAY = 20, 0.01, 4e-3, 0.02
TOKENS_PER_STEP = 1536
FALL_FROM, LONG_FROM = 0.625, 0.9  # fractions of the steps: the rates start to decay; rows become as long as the context
# By step 300 attention finds the names. What is learned late is to write them.
COPY_FROM, COPY_RATE, COPIERS = 300, 4.0, ("attn_v.weight", "attn_output.weight")
VOCABULARY_STORIES, VOCABULARY_SEED, HELD_OUT_SEED = 8000, 1_000_001, 1_000_002


def initial_weights(key, vocab):
    """Weights as [out, in], the layout of GGUF.

    The initialization gives the model two abilities that a small model would learn late.
    The output of attention inverts the value projection, so that an attended token is
    copied (mimetic initialization; Trockman and Kolter, 2023). In the first block, biases
    make the heads attend 1, 2, 3 … tokens back: the key bias is ones, and the query bias
    is rotated by that many positions, so that after RoPE the two align at that distance.
    """
    e, kv, f, d = C.embedding, C.kv_heads * C.head_dim, C.feed_forward, C.head_dim
    shapes = {"attn_q": (e, e), "attn_k": (kv, e), "attn_v": (kv, e), "ffn_gate": (f, e), "ffn_up": (f, e)}
    # The output matrix is the embedding: the last norm brings its scale back to one.
    w = {"token_embd.weight": jax.random.normal(key, (vocab, e)) * 0.5, "output_norm.weight": jnp.full(e, 1 / 8)}
    for i in range(C.blocks):
        p = f"blk.{i}."
        for name, shape in shapes.items():
            key, sub = jax.random.split(key)
            w[p + name + ".weight"] = jax.random.normal(sub, shape) * shape[1] ** -0.5
        values = w[p + "attn_v.weight"].reshape(C.kv_heads, d, e)
        w[p + "attn_output.weight"] = jnp.repeat(values, C.heads // C.kv_heads, 0).reshape(-1, e).T / 8
        w[p + "ffn_down.weight"] = jnp.zeros((e, f))
        w[p + "attn_q.bias"], w[p + "attn_k.bias"], w[p + "attn_v.bias"] = jnp.zeros(e), jnp.zeros(kv), jnp.zeros(kv)
        w[p + "attn_norm.weight"], w[p + "ffn_norm.weight"] = jnp.ones(e), jnp.ones(e)
    fast = 6.0 * (jnp.arange(d) % (d // 2) < d // 8)  # only pairs with a high frequency distinguish neighboring positions
    ones = fast * (jnp.arange(d) < d // 2)
    w["blk.0.attn_k.bias"] = jnp.tile(ones, C.kv_heads)
    w["blk.0.attn_q.bias"] = jnp.concatenate([turn(ones, -(h + 1)) for h in range(C.heads)])
    for name in ("attn_q", "attn_k"):
        w[f"blk.0.{name}.weight"] /= 2
    w["blk.0.attn_output.weight"] = jax.random.normal(key, (e, e)) / 32  # different output directions per head keep their tokens distinguishable
    return w


def rms_norm(x, gain):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + C.norm_epsilon) * gain


def turn(x, position):
    """Rotates the last axis of x by position; dimension i pairs with i + head_dim/2."""
    d = x.shape[-1]
    angle = position * C.rope_base ** (-jnp.arange(0, d, 2) / d)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    a, b = x[..., : d // 2], x[..., d // 2:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def rope(x):
    """Rotates [B, T, heads, head_dim] by the positions 0 … T-1."""
    return turn(x, jnp.arange(x.shape[1])[:, None, None])


def forward(w, tokens):
    """Logits [B, T, vocab] of tokens [B, T]: the qwen2 architecture, with tied embeddings."""
    b, t = tokens.shape
    x = w["token_embd.weight"][tokens]
    causal = jnp.tril(jnp.ones((t, t), bool))
    for i in range(C.blocks):
        def linear(name, x, p=f"blk.{i}."):
            y = x @ w[p + name + ".weight"].T
            return y + w[p + name + ".bias"] if p + name + ".bias" in w else y

        n = rms_norm(x, w[f"blk.{i}.attn_norm.weight"])
        q = rope(linear("attn_q", n).reshape(b, t, C.heads, C.head_dim))
        k = rope(linear("attn_k", n).reshape(b, t, C.kv_heads, C.head_dim))
        v = linear("attn_v", n).reshape(b, t, C.kv_heads, C.head_dim)
        q = q.reshape(b, t, C.kv_heads, C.heads // C.kv_heads, C.head_dim)
        scores = jnp.einsum("btghd,bsgd->bghts", q, k) * C.head_dim ** -0.5
        shares = jax.nn.softmax(jnp.where(causal, scores, -1e30), -1)
        x = x + linear("attn_output", jnp.einsum("bghts,bsgd->btghd", shares, v).reshape(b, t, -1))
        n = rms_norm(x, w[f"blk.{i}.ffn_norm.weight"])
        x = x + linear("ffn_down", jax.nn.silu(linear("ffn_gate", n)) * linear("ffn_up", n))
    return rms_norm(x, w["output_norm.weight"]) @ w["token_embd.weight"].T


def loss_of(w, rows):
    """Mean nats per token of rows [B, T+1]."""
    logits = forward(w, rows[:, :-1])
    picked = jnp.take_along_axis(logits, rows[:, 1:, None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)


def orthogonal(g):
    """Approximately the nearest orthogonal matrix to g: four Newton-Schulz steps."""
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (jnp.linalg.norm(x) + 1e-7)
    for _ in range(4):
        s = x @ x.T
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def is_matrix(name):
    return name.startswith("blk.") and name.endswith(".weight") and "norm" not in name


@jax.jit
def train_step(w, m, v, rows, n, rate):
    """One step; rate in [0, 1] scales both learning rates, n counts from 1."""
    copy_rate = jnp.where(n > COPY_FROM, COPY_RATE, 1.0)
    loss, grads = jax.value_and_grad(loss_of)(w, rows)
    w, m, v = dict(w), dict(m), dict(v)
    for k, g in grads.items():
        if is_matrix(k):
            m[k] = 0.95 * m[k] + g
            step = orthogonal(g + 0.95 * m[k]) * max(1.0, g.shape[0] / g.shape[1]) ** 0.5
            own_rate = MATRIX_RATE * rate * (copy_rate if k.endswith(COPIERS) else 1.0)
            w[k] = w[k] * (1 - own_rate * DECAY) - own_rate * step
        else:
            m[k] = 0.9 * m[k] + 0.1 * g
            v[k] = 0.98 * v[k] + 0.02 * g * g
            step = m[k] / (1 - 0.9 ** n) / (jnp.sqrt(v[k] / (1 - 0.98 ** n)) + 1e-8)
            w[k] = w[k] - OTHER_RATE * rate * step
    return w, m, v, loss


def batches(tokenizer, seed, rows, length):
    """Infinite batches [rows, length+1]. Each row starts with the beginning of a story, and is
    filled with further stories."""
    source = stories.stories(seed)
    while True:
        batch = []
        for _ in range(rows):
            row = []
            while len(row) <= length:
                row += tokenizer.encode(next(source)) + [tokenizer.eos]
            batch.append(row[: length + 1])
        yield np.array(batch, np.int32)


def rate_at(step, steps):
    """The fraction of the full learning rates at a step, counted from 1."""
    return min(step / WARM_UP, 1.0, (steps - step + 1) / (steps * (1 - FALL_FROM)))


def save(path, step, tokenizer, merges, w, m, v):
    groups = {"": w, "m:": m, "v:": v}
    np.savez(path, step=step, tokens=np.array(tokenizer.tokens), merges=np.array([" ".join(x) for x in merges]),
             **{p + k: np.asarray(x) for p, g in groups.items() for k, x in g.items()})


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out")
    p.add_argument("--steps", type=int, default=800)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()

    texts = itertools.islice(stories.stories(VOCABULARY_SEED), VOCABULARY_STORIES)
    tokens, merges = bpe.train(texts, C.vocabulary)
    tokenizer = bpe.Tokenizer(tokens, merges)
    w = initial_weights(jax.random.key(a.seed), len(tokens))
    m = {k: jnp.zeros_like(x) for k, x in w.items()}
    v = {k: jnp.zeros_like(x) for k, x in w.items() if not is_matrix(k)}
    done = 0
    if os.path.exists(a.out):
        old = np.load(a.out)
        done = int(old["step"])
        w, m, v = ({k: jnp.asarray(old[p + k]) for k in g} for p, g in (("", w), ("m:", m), ("v:", v)))
    print(f"{sum(x.size for x in w.values())} parameters, {len(tokens)} tokens, {done} steps done", flush=True)

    held_out = next(batches(tokenizer, HELD_OUT_SEED, 32, C.story))
    held_out_loss = jax.jit(loss_of)
    data = {n: batches(tokenizer, a.seed + n, TOKENS_PER_STEP // n, n) for n in (C.story, C.context)}
    start = time.time()
    for step in range(1, a.steps + 1):
        rows = next(data[C.context if step > LONG_FROM * a.steps else C.story])
        if step <= done:
            continue
        w, m, v, loss = train_step(w, m, v, rows, jnp.float32(step), jnp.float32(rate_at(step, a.steps)))
        if step % 20 == 0:
            print(f"step {step} loss {float(loss):.4f} after {time.time() - start:.0f} s", flush=True)
        if step % 50 == 0 or step == a.steps:
            print(f"step {step} held-out {float(held_out_loss(w, held_out)):.4f}", flush=True)
            save(a.out, step, tokenizer, merges, w, m, v)


if __name__ == "__main__":
    main()
