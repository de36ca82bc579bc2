#!/usr/bin/env python3
"""Prints the last position of a pass, in the format of `pesti dump`.

    probe_all_layers.py MODEL --ids 1,2,3      runs the oracle in float64
    probe_all_layers.py DIR                    reads a dump

The format is one line per block and two at the end, with all numbers as %.4f:

    layer 00 norm N first8 V V V V V V V V
    top8 ID:LOGIT ID:LOGIT … (eight, best first; equal logits by ascending id)
    argmax ID

N is the Euclidean norm of the residual stream after the block, at the last position.
V are its first eight values (fewer if it is narrower). The logits are of the last
position. Layer numbers have two digits, and three from layer 100 on.
"""

import argparse
import pathlib
import sys

import numpy as np

import dumps
import ref_forward
from model import Model, ModelError


def lines(layers, logits):
    """Yields the lines for residual streams [T, n_embd] and logits [rows, n_vocab]."""
    for n, layer in enumerate(layers):
        last = np.asarray(layer[-1], dtype=np.float64)
        values = " ".join(f"{v:.4f}" for v in last[:8])
        yield f"layer {n:02d} norm {np.linalg.norm(last):.4f} first8 {values}"
    best = np.argsort(-logits[-1], kind="stable")[:8]
    yield "top8 " + " ".join(f"{i}:{logits[-1][i]:.4f}" for i in best)
    yield f"argmax {best[0]}"


def main(argv=None):
    parser = argparse.ArgumentParser(description="Print norms, first values and top tokens of a pass, layer by layer.")
    parser.add_argument("source", metavar="MODEL|DIR", type=pathlib.Path)
    parser.add_argument("--ids", help="token ids, for a MODEL")
    args = parser.parse_args(argv)
    if args.source.is_dir():
        source = dumps.Dump(args.source)
    elif args.ids is None:
        parser.error("a MODEL needs --ids")
    else:
        model = Model(args.source)
        ids = ref_forward.parse_ids(args.ids, model.rows("token_embd.weight"))
        source = ref_forward.run(model, ids, np.float64, logit_rows=slice(-1, None))
    for line in lines(source.layers, source.logits):
        print(line)


if __name__ == "__main__":
    try:
        main()
    except (ModelError, dumps.DumpError, OSError, ValueError) as error:
        sys.exit(f"probe_all_layers: {error}")
