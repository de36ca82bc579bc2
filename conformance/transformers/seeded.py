"""Weights that follow from a seed and the name of their tensor, and the descriptions of models that have them.

conformance/tiny/seeded.go computes the same weights with the same bits; a test compares.
"""

import json
import math
import pathlib
import re

import numpy as np

MODELS = pathlib.Path(__file__).resolve().parent / "models"


class SeededError(Exception):
    """A description is wrong. The message is one line."""


def hash64(text):
    """FNV-1a of the text, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def values(seed, name, count, mean, spread):
    """count numbers of float32, uniform within mean ± spread.

    Number i is the 24 high bits of SplitMix64's output i, whose state starts at the hash of
    seed and name. As 2k + 1 - 2²⁴ they are an odd integer that float32 represents exactly;
    the product and the sum are rounded once each, so the bits are the same everywhere.
    """
    with np.errstate(over="ignore"):
        z = np.uint64(hash64(f"{seed}/{name}")) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    unit = (2 * (z >> np.uint64(40)).astype(np.int64) + 1 - 2**24).astype(np.float32) * np.float32(2**-24)
    return unit * np.float32(spread) + np.float32(mean)


def expand(pattern, layers):
    """The names of a pattern: one for each layer if it has an asterisk."""
    return [pattern.replace("*", str(n)) for n in range(layers)] if "*" in pattern else [pattern]


class Description:
    """One file of the folder models: see README.md there."""

    def __init__(self, name):
        path = MODELS / f"{name}.json"
        self.name, facts = name, json.loads(path.read_text())
        self.layers, self.tokens, self.transformers = facts["layers"], facts["tokens"], facts["transformers"]
        self.shapes, self._range = {}, {}
        for pattern, shape in facts["tensors"].items():
            for tensor in expand(pattern, self.layers):
                if tensor in self.shapes:
                    raise SeededError(f"{path}: tensor {tensor} is described twice")
                self.shapes[tensor] = tuple(shape)
                self._range[tensor] = facts.get("values", {}).get(pattern)

    def weight(self, tensor):
        """The tensor as float32, with its shape."""
        shape = self.shapes[tensor]
        mean, spread = self._range[tensor] or usual_range(tensor, shape)
        return values(self.name, tensor, math.prod(shape), mean, spread).reshape(shape)


def usual_range(tensor, shape):
    """(mean, spread): a matrix keeps the variance of its input; a norm is around 1, a bias around 0."""
    if len(shape) > 1:
        return 0.0, math.sqrt(3 / shape[-1])
    return (0.0 if tensor.endswith(".bias") else 1.0), 0.5


def names():
    """The names of all descriptions."""
    return sorted(path.stem for path in MODELS.glob("*.json") if re.fullmatch(r"[a-z0-9_-]+", path.stem))
