#!/usr/bin/env python3
"""Shows which faults the bounds catch. Each fault is seeded into the oracle and compared with the oracle without it.

    faults.py [FAULT …]

Prints a table. For each fault and model it has the largest d of any layer, the first
layer where d exceeds the tolerance, the largest |Δlogit|, and, for comparison, the
error relative to the largest value of a position.
"""

import contextlib
import dataclasses
import math
import pathlib
import sys
from unittest import mock

import numpy as np

import blocks
import measure
import ref_forward
from model import Model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import models  # noqa: E402

LAYER = 3  # the layer of a fault that is confined to one layer
PAGE = 16  # tokens per page of the KV cache

# The prompt "fox" four times: more than two pages.
IDS = {
    "smollm2-135m-instruct-q4_1.gguf": [504, 2365, 6354, 16438, 27003, 690, 260, 23790, 2767, 30] * 4,
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf": [785, 3974, 13876, 38835, 34208, 916, 279, 15678, 5562, 13] * 4,
    "gemma-3-270m-q4_k_m.gguf": [2] + [818, 3823, 8864, 37423, 38167, 1024, 506, 31770, 4799, 236761] * 4,
}


def gelu_erf(x):
    """The exact GELU. The tanh form approximates it to 5e-4."""
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def replace_layers(model, change, only=None):
    """A patch of the model's hyper-parameters, in one layer or in all."""
    layers = [dataclasses.replace(layer, **change(layer)) if only in (None, n) else layer for n, layer in enumerate(model.layers)]
    return mock.patch.object(model, "layers", layers)


def in_layer(n, patch):
    """A patch that is active while block n computes."""
    block = ref_forward.block

    def patched(model, current, *rest):
        with patch() if current == n else contextlib.nullcontext():
            return block(model, current, *rest)

    return mock.patch.object(ref_forward, "block", patched)


def attention_with(change):
    """A patch of attention that changes its arguments k and v."""
    attention = blocks.attention
    return mock.patch.object(blocks, "attention", lambda q, k, v, *rest: attention(q, change(k), change(v), *rest))


def stale_page(x):
    """The second page still has the contents of the first one."""
    y = x.copy()
    y[PAGE:2 * PAGE] = x[:PAGE]
    return y


def no_k_bias(model):
    optional = model.optional
    return mock.patch.object(model, "optional", lambda name, dtype: None if name == f"blk.{LAYER}.attn_k.bias" else optional(name, dtype))


def activation(name, function):
    return lambda model: mock.patch.dict(ref_forward.ACTIVATIONS, {name: function})


def queries_one_further(model):
    """Positions + 1 for q only, which is recognized by its number of heads. Shifting q and k would be no fault: RoPE is relative."""
    rope = blocks.rope
    return mock.patch.object(blocks, "rope", lambda x, positions, *rest: rope(x, [p + (x.shape[1] == model.layers[0].heads) for p in positions], *rest))


def all_one_further(model):
    rope = blocks.rope
    return mock.patch.object(blocks, "rope", lambda x, positions, *rest: rope(x, [p + 1 for p in positions], *rest))


def larger_eps(model):
    stack = contextlib.ExitStack()
    stack.enter_context(replace_layers(model, lambda layer: {"eps": layer.eps * 10}))
    stack.enter_context(mock.patch.object(model, "eps", model.eps * 10))
    return stack


# name → (architectures it applies to, patch of an open model)
EVERY = ("llama", "qwen2", "gemma3")
FAULTS = {
    "K bias dropped in one layer": (("qwen2",), no_k_bias),
    "SiLU squared": (("llama", "qwen2"), activation("silu", lambda x: blocks.silu(x) ** 2)),
    "erf for tanh GELU": (("gemma3",), activation("gelu_tanh", gelu_erf)),
    "RoPE base × 1.01 in one layer": (EVERY, lambda model: replace_layers(model, lambda layer: {"rope_base": layer.rope_base * 1.01}, LAYER)),
    "positions of queries + 1": (EVERY, queries_one_further),
    "positions of queries and keys + 1": (EVERY, all_one_further),
    "wrong KV head": (("llama", "qwen2"), lambda model: attention_with(lambda x: np.roll(x, 1, axis=1))),
    "norm epsilon × 10": (EVERY, larger_eps),
    "one page of KV stale in one layer": (EVERY, lambda model: in_layer(LAYER, lambda: attention_with(stale_page))),
}


def relative_to_largest(a, b):
    """A measure that hides errors: the largest |a - b| of a row over the largest |b|."""
    return float(np.max(np.max(np.abs(a - b), axis=-1) / np.max(np.abs(b), axis=-1)))


def main(argv):
    chosen = {name: FAULTS[name] for name in argv} if argv else FAULTS
    print("| fault | model | worst d | first layer above 1e-4 | worst \\|Δlogit\\| | relative to largest |")
    print("|---|---|---|---|---|---|")
    for file, ids in IDS.items():
        model = Model(models.models_folder() / file)
        right = ref_forward.run(model, ids, np.float64)
        for name, (architectures, patch) in chosen.items():
            if model.architecture not in architectures:
                continue
            with patch(model):
                wrong = ref_forward.run(model, ids, np.float64)
            d = [measure.worst(a, b)[0] for a, b in zip(wrong.layers, right.layers)]
            first = next((n for n, x in enumerate(d) if x > measure.TOLERANCE), "none")
            blind = max(relative_to_largest(a, b) for a, b in zip(wrong.layers, right.layers))
            delta = np.max(np.abs(wrong.logits - right.logits))
            print(f"| {name} | {model.architecture} | {max(d):.1e} | {first} | {delta:.1e} | {blind:.1e} |", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyError as error:
        sys.exit(f"faults: unknown fault {error}, want one of: {', '.join(FAULTS)}")
