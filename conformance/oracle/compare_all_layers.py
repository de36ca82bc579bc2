#!/usr/bin/env python3
"""Compares two dumps layer by layer; exits 1 where they differ by more than the bounds.

    compare_all_layers.py DIR_A DIR_B [--tol 1e-4]

DIR_B is the oracle's. Per layer it prints the worst d (see measure.py), where
it is, and what is allowed there: the tolerance, or three times the float32 floor
where DIR_B/floor.json shows one above 3e-5. Logits must lie within 1e-3, and the
argmax must agree wherever the oracle's best two are further apart than that.
"""

import argparse
import sys

import numpy as np

import dumps
import measure


def compare(a, b, tolerance):
    """Yields (line, passed) for every layer and for the logits; a and b are dumps, b the oracle's."""
    if not np.array_equal(a.tokens, b.tokens):
        raise dumps.DumpError(f"{a.folder}: tokens {a.tokens.tolist()}, want those of {b.folder}: {b.tokens.tolist()}")
    if len(a.layers) != len(b.layers):
        raise dumps.DumpError(f"{a.folder}: {len(a.layers)} layers, want the {len(b.layers)} of {b.folder}")
    for n, (x, y) in enumerate(zip(a.layers, b.layers)):
        if x.shape != y.shape:
            raise dumps.DumpError(f"{a.folder}: layer {n} has the shape {x.shape}, want {y.shape}")
        d, position, dim = measure.worst(x, y)
        bound = measure.allowed(tolerance, b.floor["layers"][n])
        yield report(f"layer {n:02d} d {d:.3e} at position {position} dim {dim} allowed {bound:.3e}", d <= bound)

    x, y = a.logits[b.logit_rows] if len(a.logits) == len(a.tokens) else a.logits, b.logits
    if x.shape != y.shape:
        raise dumps.DumpError(f"{a.folder}: logits have the shape {a.logits.shape}, want rows {b.logit_rows.start} to {b.logit_rows.stop} of {y.shape[1]}")
    delta = np.abs(x.astype(np.float64) - y)
    row, token = np.unravel_index(np.argmax(delta), delta.shape)
    worst = delta[row, token]
    yield report(f"logits |delta| {worst:.3e} at position {b.logit_rows.start + row} token {token} allowed {measure.LOGIT_TOLERANCE:.3e}", worst <= measure.LOGIT_TOLERANCE)

    best, margin = measure.margins(y)
    clear = margin > measure.LOGIT_TOLERANCE
    equal = np.argmax(x, axis=-1) == best
    yield report(f"argmax equal in {np.sum(equal & clear)} of {np.sum(clear)} clear positions, {np.sum(~clear)} too close to tell", bool(np.all(equal | ~clear)))


def report(line, passed):
    return f"{line} {'ok' if passed else 'FAIL'}", bool(passed)


def main(argv=None):
    parser = argparse.ArgumentParser(description="Compare two dumps layer by layer.")
    parser.add_argument("a", metavar="DIR_A")
    parser.add_argument("b", metavar="DIR_B", help="the oracle's")
    parser.add_argument("--tol", type=float, default=measure.TOLERANCE, help="bound on d")
    args = parser.parse_args(argv)
    passed = True
    for line, ok in compare(dumps.Dump(args.a), dumps.Dump(args.b), args.tol):
        print(line)
        passed &= ok
    return 0 if passed else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (dumps.DumpError, OSError, ValueError) as error:
        sys.exit(f"compare_all_layers: {error}")
