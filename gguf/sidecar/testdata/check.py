#!/usr/bin/env python3
"""Holds a sidecar against the model that it is for, by other people's programs.

    check.py MODEL.gguf FILE.safetensors

The library safetensors reads the one, the package gguf the other, and ml_dtypes
rounds to E4M3. Every scale and every code must be the same bytes. Prints the
names of the matrices; exits 1, with one line, at the first difference.
"""

import sys

import gguf
import ml_dtypes
import numpy as np
import safetensors


def expected(rows):
    """The scales of rows and their codes."""
    top = np.abs(rows).max(axis=1, keepdims=True)
    scale = (top / np.float32(448)).astype(np.float32)
    scale[scale < np.float32(2.0**-126)] = 1
    return scale, (rows / scale).astype(ml_dtypes.float8_e4m3fn)


def main(model, path):
    with open(path, "rb") as f:
        tensors = dict(safetensors.deserialize(f.read()))
    found = []
    for t in gguf.GGUFReader(model).tensors:
        if t.name not in tensors:
            continue
        found.append(t.name)
        rows = gguf.dequantize(t.data, t.tensor_type).astype(np.float32)
        scale, codes = expected(rows.reshape(int(t.shape[1]), int(t.shape[0])))
        codes_there, scale_there = tensors[t.name], tensors[t.name + ".scale"]
        want = [("F8_E4M3", list(codes.shape), codes.tobytes()), ("F32", [len(scale)], scale.tobytes())]
        for (dtype, shape, data), there in zip(want, (codes_there, scale_there)):
            if (there["dtype"], list(there["shape"]), bytes(there["data"])) != (dtype, shape, data):
                sys.exit(f"{t.name}: {there['dtype']}{there['shape']} is not {dtype}{shape}, or not of the same bytes")
    if 2 * len(found) != len(tensors):
        sys.exit(f"{len(tensors)} tensors, {len(found)} of them those of the model")
    print("\n".join(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
