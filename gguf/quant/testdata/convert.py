"""Converts tensor data with the Python package gguf, for comparison.

convert.py DIR: each DIR/TYPE.blocks becomes float32 values in DIR/TYPE.values;
each DIR/TYPE.floats, float32 values, becomes blocks in DIR/TYPE.quantized;
DIR/sizes.json tells block length and size of every type, and DIR/reads.json
the types that the package dequantizes."""

import json
import pathlib
import sys

import gguf
import numpy as np

# The types of activations, which the package does not read: their elements and scale.
OWN = {
    "Q8_1": np.dtype([("d", "<f2"), ("s", "<f2"), ("q", "i1", 32)]),
    "Q8_K": np.dtype([("d", "<f4"), ("q", "i1", 256), ("sums", "<i2", 16)]),
}


def dequantize(name, data):
    if name in OWN:
        blocks = data.view(OWN[name])
        return blocks["d"].astype(np.float32)[:, None] * blocks["q"].astype(np.float32)
    return gguf.dequantize(data.reshape(1, -1), gguf.GGMLQuantizationType[name])


def reads(kind):
    size = gguf.GGML_QUANT_SIZES[kind][1]
    try:
        gguf.dequantize(np.zeros((1, size), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


folder = pathlib.Path(sys.argv[1])
np.seterr(all="ignore")  # blocks are random bits: infinities and NaN are meant

for path in folder.glob("*.blocks"):
    values = dequantize(path.stem, np.fromfile(path, np.uint8))
    assert values.dtype == np.float32, (path.stem, values.dtype)
    values.tofile(path.with_suffix(".values"))

for path in folder.glob("*.floats"):
    kind = gguf.GGMLQuantizationType[path.stem]
    data = np.fromfile(path, np.float32).reshape(1, -1)
    gguf.quantize(data, kind).tofile(path.with_suffix(".quantized"))

sizes = {k.name: [int(k), *v] for k, v in gguf.GGML_QUANT_SIZES.items()}
(folder / "sizes.json").write_text(json.dumps(sizes))
(folder / "reads.json").write_text(json.dumps([k.name for k in gguf.GGML_QUANT_SIZES if reads(k)]))
