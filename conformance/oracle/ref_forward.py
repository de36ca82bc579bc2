#!/usr/bin/env python3
"""The oracle: a transformer's forward pass in plain numpy.

It shares no code with the Go programs. The package `gguf` dequantizes the weights to
float32. All arithmetic is in float64, so that the oracle's own rounding error is nine
digits below the bounds that it checks.

    ref_forward.py MODEL --ids 1,2,3 -o DIR [--floor] [--values 'blk.3.*']
                   [--layer-rows LO:HI] [--logit-rows LO:HI] [--argmax]
                   [--dtype float64|float32] [--llama3 FACTOR,LOW,HIGH,CONTEXT]

DIR receives
    tokens.npy      int32 [T]          the token ids
    layer_00.npy …  dtype [T, n_embd]  the residual stream after each block or,
                                       with --layer-rows, only those rows
    logits.npy      dtype [T, n_vocab] or, with --logit-rows, only those rows
    NAME.npy        dtype [T, width]   each value whose name matches --values
    floor.json      with --floor: the d between this pass and the same pass in
                    float32: {"layers": [worst of each layer], "logits": worst}
    oracle.json     {"architecture", "dtype", "logit_rows": [LO, HI]}

Names inside a block N, in order of computation:
    blk.N.attn_norm  blk.N.q  blk.N.k  blk.N.v (with bias)  blk.N.q_norm
    blk.N.k_norm  blk.N.q_rope  blk.N.k_rope  blk.N.attn (heads concatenated)
    blk.N.attn_out  blk.N.attn_post_norm  blk.N.attn_res (residual stream)
    blk.N.ffn_norm  blk.N.ffn_gate  blk.N.ffn_up  blk.N.ffn_act (activated gate)
    blk.N.ffn_gated (ffn_act × ffn_up)  blk.N.ffn_out  blk.N.ffn_post_norm  blk.N.out
and around the blocks: embd, embd_scaled, output_norm, logits. A value that the
architecture does not have is not written.

--argmax prints one line per logit row: `pos P argmax ID margin M`. M is the difference
between the best and the second-best logit. One pass over a prompt and the tokens that a
program generated after it therefore shows where greedy decoding would differ.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import math
import pathlib
import sys

import numpy as np

import blocks
import measure
from model import Model, ModelError

HEAD_ROWS = 16_384  # rows of the output matrix dequantized at a time: 117 MB of float64 at 896 columns

ACTIVATIONS = {"silu": blocks.silu, "gelu_tanh": blocks.gelu_tanh}


def forward(model, ids, dtype, observe, logit_rows=slice(None)):
    """One pass over the token ids, from position 0. observe(name, value [T, width]) is called with every named value."""
    ids = np.asarray(ids)
    x = model.weight("token_embd.weight", dtype, rows=ids)
    observe("embd", x)
    if model.facts.get("scale_embeddings"):
        x = x * math.sqrt(model.embedding_length)
        observe("embd_scaled", x)
    for n, layer in enumerate(model.layers):
        x = block(model, n, layer, x, observe)
    x = blocks.rms_norm(x[logit_rows], model.weight("output_norm.weight", dtype), model.eps)
    observe("output_norm", x)
    observe("logits", head(model, x))


def block(model, n, layer, x, observe):
    """Block n: attention and feed-forward, each with its residual connection."""
    def weight(name):
        return model.weight(f"blk.{n}.{name}", x.dtype)

    def named(name, value):
        observe(f"blk.{n}.{name}", value.reshape(len(x), -1))
        return value

    def norm(name, value, tensor):
        """The norm with that tensor, or the value itself if the model lacks the tensor."""
        if not model.has(f"blk.{n}.{tensor}.weight"):
            return value
        return named(name, blocks.rms_norm(value, weight(tensor + ".weight"), layer.eps))

    def project(name, value, tensor):
        bias = model.optional(f"blk.{n}.{tensor}.bias", x.dtype)
        return named(name, blocks.linear(value, weight(tensor + ".weight"), bias))

    h = norm("attn_norm", x, "attn_norm")
    q = heads(project("q", h, "attn_q"), layer.heads)
    k = heads(project("k", h, "attn_k"), layer.kv_heads)
    v = heads(project("v", h, "attn_v"), layer.kv_heads)
    q, k = norm("q_norm", q, "attn_q_norm"), norm("k_norm", k, "attn_k_norm")
    freq = frequencies(model, layer)
    q = named("q_rope", blocks.rope(q, range(len(x)), freq, layer.rope_layout, layer.rope_magnitude))
    k = named("k_rope", blocks.rope(k, range(len(x)), freq, layer.rope_layout, layer.rope_magnitude))
    mask = blocks.causal_mask(len(x), layer.window)
    a = named("attn", blocks.attention(q, k, v, layer.scale, mask))
    a = project("attn_out", a.reshape(len(x), -1), "attn_output")
    x = named("attn_res", x + norm("attn_post_norm", a, "post_attention_norm"))

    h = norm("ffn_norm", x, "ffn_norm")
    gate, up = project("ffn_gate", h, "ffn_gate"), project("ffn_up", h, "ffn_up")
    act = named("ffn_act", ACTIVATIONS[model.facts.get("activation", "silu")](gate))
    f = project("ffn_out", named("ffn_gated", act * up), "ffn_down")
    return named("out", x + norm("ffn_post_norm", f, "post_ffw_norm"))


def frequencies(model, layer):
    """Angle per position of each rotated pair of the layer."""
    if model.llama3:
        return blocks.llama3_frequencies(blocks.rope_frequencies(layer.rope_width, layer.rope_base), *model.llama3)
    divisors = model.optional("rope_freqs.weight", np.float64)
    freq = blocks.rope_frequencies(layer.rope_width, layer.rope_base, divisors, layer.rope_factor)
    if layer.yarn is None:
        return freq
    return blocks.yarn_frequencies(freq, layer.rope_base, layer.yarn.factor, layer.yarn.context, layer.yarn.fast, layer.yarn.slow)


def heads(x, count):
    """[T, heads × width] as [T, heads, width]."""
    return x.reshape(len(x), count, -1)


def head(model, x):
    """Logits [rows, n_vocab]; a model without output.weight reuses its embeddings."""
    name = "output.weight" if model.has("output.weight") else "token_embd.weight"
    rows = model.rows(name)
    logits = np.empty((len(x), rows), dtype=x.dtype)
    for lo in range(0, rows, HEAD_ROWS):
        part = slice(lo, min(lo + HEAD_ROWS, rows))
        logits[:, part] = blocks.linear(x, model.weight(name, x.dtype, rows=part))
    return logits


class Recorder:
    """Records rows of the residual streams, the logits, and every value that matches a pattern."""

    def __init__(self, pattern=None, layer_rows=slice(None)):
        self.layers, self.logits, self.values = [], None, {}
        self._pattern, self._layer_rows = pattern, layer_rows

    def __call__(self, name, value):
        if name.endswith(".out"):
            self.layers.append(value[self._layer_rows].copy())  # a view would keep all rows in memory
        elif name == "logits":
            self.logits = value
        if self._pattern and fnmatch.fnmatchcase(name, self._pattern):
            self.values[name] = value


def run(model, ids, dtype, logit_rows=slice(None), pattern=None, layer_rows=slice(None)):
    """One pass, recorded."""
    recorder = Recorder(pattern, layer_rows)
    forward(model, ids, np.dtype(dtype), recorder, logit_rows)
    return recorder


def floor_of(single, exact):
    """The float32 floor: the worst d that float32 arithmetic alone causes, per layer and of the logits.

    single and exact are the same run in float32 and in the dtype of the oracle.
    """
    return {
        "layers": [measure.worst(a, b)[0] for a, b in zip(single.layers, exact.layers)],
        "logits": measure.worst(single.logits, exact.logits)[0],
    }


def parse_ids(text, vocabulary):
    ids = [int(word) for word in text.replace(",", " ").split()]
    if not ids:
        raise ModelError("--ids is empty, want at least one token id")
    for i in ids:
        if not 0 <= i < vocabulary:
            raise ModelError(f"--ids: id {i} is outside the vocabulary of {vocabulary}")
    return ids


def parse_rows(text, tokens):
    """LO:HI as a slice of the positions; either side may be empty."""
    lo, _, hi = text.partition(":")
    return slice(*slice(int(lo) if lo else None, int(hi) if hi else None).indices(tokens)[:2])


def arguments(argv):
    parser = argparse.ArgumentParser(description="Forward pass of a GGUF model in numpy: the oracle of all comparisons.")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--ids", required=True, help="token ids, separated by commas or spaces")
    parser.add_argument("-o", dest="out", metavar="DIR", required=True, type=pathlib.Path)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--values", metavar="PATTERN", help="also write the values whose name matches, such as 'blk.3.*'")
    parser.add_argument("--layer-rows", metavar="LO:HI", default=":", help="positions whose residual streams are written")
    parser.add_argument("--logit-rows", metavar="LO:HI", default=":", help="positions whose logits are written")
    parser.add_argument("--floor", action="store_true", help="also compute the float32 floor")
    parser.add_argument("--llama3", metavar="FACTOR,LOW,HIGH,CONTEXT", type=lambda text: [float(x) for x in text.split(",")],
                        help="compute RoPE by Llama 3's formula instead of the file's tensor rope_freqs.weight")
    parser.add_argument("--argmax", action="store_true", help="print argmax and margin per position")
    return parser.parse_args(argv)


def main(argv=None):
    args = arguments(argv)
    model = Model(args.model)
    model.llama3 = args.llama3
    ids = parse_ids(args.ids, model.rows("token_embd.weight"))
    rows = parse_rows(args.logit_rows, len(ids))
    layer_rows = parse_rows(args.layer_rows, len(ids))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        if args.floor:  # at the same time, which is faster on two processors
            single = pool.submit(run, model, ids, np.float32, rows, layer_rows=layer_rows)
        result = run(model, ids, args.dtype, rows, args.values, layer_rows)

    args.out.mkdir(parents=True, exist_ok=True)
    np.save(args.out / "tokens.npy", np.array(ids, dtype=np.int32))
    for n, value in enumerate(result.layers):
        np.save(args.out / f"layer_{n:02d}.npy", value)
    np.save(args.out / "logits.npy", result.logits)
    for name, value in result.values.items():
        np.save(args.out / f"{name}.npy", value)
    about = {"architecture": model.architecture, "dtype": args.dtype, "logit_rows": [rows.start, rows.stop]}
    (args.out / "oracle.json").write_text(json.dumps(about) + "\n")

    if args.floor:
        floor = floor_of(single.result(), result)
        (args.out / "floor.json").write_text(json.dumps(floor) + "\n")
        for n, d in enumerate(floor["layers"]):
            print(f"floor layer {n:02d} d {d:.3e}")
        print(f"floor logits d {floor['logits']:.3e}")
    if args.argmax:
        for pos, best, margin in zip(range(rows.start, rows.stop), *measure.margins(result.logits)):
            print(f"pos {pos} argmax {best} margin {margin:.6f}")


if __name__ == "__main__":
    try:
        main()
    except (ModelError, OSError, ValueError) as error:
        sys.exit(f"ref_forward: {error}")
