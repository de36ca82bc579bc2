"""Converts tensor data with the Python package gguf, for comparison.

convert.py DIR: each DIR/TYPE.blocks becomes float32 values in DIR/TYPE.values;
each DIR/TYPE.floats, float32 values, becomes blocks in DIR/TYPE.quantized; and
DIR/sizes.json tells block length and size of every type."""

import json
import pathlib
import sys

import gguf
import numpy as np

folder = pathlib.Path(sys.argv[1])
np.seterr(all="ignore")  # blocks are random bits: infinities and NaN are meant

for path in folder.glob("*.blocks"):
    kind = gguf.GGMLQuantizationType[path.stem]
    data = np.fromfile(path, np.uint8).reshape(1, -1)
    gguf.dequantize(data, kind).astype(np.float32).tofile(path.with_suffix(".values"))

for path in folder.glob("*.floats"):
    kind = gguf.GGMLQuantizationType[path.stem]
    data = np.fromfile(path, np.float32).reshape(1, -1)
    gguf.quantize(data, kind).tofile(path.with_suffix(".quantized"))

sizes = {k.name: [int(k), *v] for k, v in gguf.GGML_QUANT_SIZES.items()}
(folder / "sizes.json").write_text(json.dumps(sizes))
