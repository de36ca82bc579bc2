#!/usr/bin/env python3
"""Compares two dumps layer by layer; exits with 1 if they differ by more than the bounds.

    compare_all_layers.py DIR_A DIR_B [--tol 1e-4]

DIR_B is the oracle's. For each layer the program prints the worst d (see measure.py),
its position, and the allowed d: the tolerance, or three times the float32 floor if
DIR_B/floor.json has a floor above 3e-5. Logits must agree within 1e-3. The argmax
must agree wherever the oracle's two best logits differ by more than that.
"""

import argparse
import sys
from dataclasses import dataclass

import numpy as np

import dumps
import measure


@dataclass(frozen=True)
class Finding:
    """The worst error of one item, its place, and the allowed error."""

    what: str  # "layer 03", "logits", "argmax"
    measure: str
    worst: float
    where: str
    allowed: float

    @property
    def passed(self):
        return self.worst <= self.allowed  # False for NaN

    def __str__(self):
        verdict = "ok" if self.passed else "FAIL"
        return f"{self.what} {self.measure} {self.worst:.3e} {self.where} allowed {self.allowed:.3e} {verdict}"


def compare(a, b, tolerance):
    """Yields a Finding for each layer, the logits and the argmax. a and b are dumps; b is the oracle's."""
    if not np.array_equal(a.tokens, b.tokens):
        raise dumps.DumpError(f"{a.folder}: tokens {a.tokens.tolist()}, want those of {b.folder}: {b.tokens.tolist()}")
    if len(a.layers) != len(b.layers):
        raise dumps.DumpError(f"{a.folder}: {len(a.layers)} layers, want {len(b.layers)} as in {b.folder}")
    for n, (x, y) in enumerate(zip(a.layers, b.layers)):
        if x.shape != y.shape:
            raise dumps.DumpError(f"{a.folder}: layer {n} has the shape {x.shape}, want {y.shape}")
        d, position, dim = measure.worst(x, y)
        yield Finding(f"layer {n:02d}", "d", d, f"at position {position} dim {dim}", measure.allowed(tolerance, b.floor["layers"][n]))

    y = b.logits
    x = a.logits[b.logit_rows] if len(a.logits) == len(a.tokens) else a.logits
    if x.shape != y.shape:
        raise dumps.DumpError(f"{a.folder}: logits have the shape {a.logits.shape}, want {y.shape}")
    delta = np.abs(x.astype(np.float64) - y)
    row, token = np.unravel_index(np.argmax(delta), delta.shape)
    yield Finding("logits", "|delta|", float(delta[row, token]), f"at position {b.logit_rows.start + row} token {token}", measure.LOGIT_TOLERANCE)

    best, margin = measure.margins(y)
    clear = margin > measure.LOGIT_TOLERANCE
    wrong = np.sum(clear & (np.argmax(x, axis=-1) != best))
    yield Finding("argmax", "wrong", float(wrong), f"of {np.sum(clear)} clear positions, {np.sum(~clear)} too close to tell", 0)


def main(argv=None):
    parser = argparse.ArgumentParser(description="Compare two dumps layer by layer.")
    parser.add_argument("a", metavar="DIR_A")
    parser.add_argument("b", metavar="DIR_B", help="the oracle's")
    parser.add_argument("--tol", type=float, default=measure.TOLERANCE, help="bound on d")
    args = parser.parse_args(argv)
    findings = list(compare(dumps.Dump(args.a), dumps.Dump(args.b), args.tol))
    for finding in findings:
        print(finding)
    return 0 if all(finding.passed for finding in findings) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (dumps.DumpError, OSError, ValueError) as error:
        sys.exit(f"compare_all_layers: {error}")
