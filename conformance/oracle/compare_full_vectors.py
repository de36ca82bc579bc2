#!/usr/bin/env python3
"""Compares two arrays of the same shape, row by row; exits with 1 if d exceeds the tolerance.

    compare_full_vectors.py A.npy B.npy [--tol 1e-4]

B is the oracle's. The last axis is a row; the other axes are flattened. The program
prints d (see measure.py) and its dim for each row. The last line is the worst element.
"""

import argparse
import sys

import numpy as np

import measure


def main(argv=None):
    parser = argparse.ArgumentParser(description="Compare two arrays element by element.")
    parser.add_argument("a", metavar="A.npy")
    parser.add_argument("b", metavar="B.npy", help="the oracle's")
    parser.add_argument("--tol", type=float, default=measure.TOLERANCE, help="bound on d")
    args = parser.parse_args(argv)
    a, b = np.load(args.a), np.load(args.b)
    if a.shape != b.shape:
        raise ValueError(f"{args.a}: shape {a.shape}, want {b.shape} as in {args.b}")
    if a.size == 0:
        raise ValueError(f"{args.a}: shape {a.shape} has no element to compare")
    width = a.shape[-1] if a.ndim else 1
    a, b = a.reshape(-1, width), b.reshape(-1, width)
    d = measure.deviations(a, b)
    for row, values in enumerate(d):
        dim = int(np.argmax(values))
        print(f"row {row} d {values[dim]:.3e} dim {dim}")
    worst, row, dim = measure.worst(a, b)
    passed = worst <= args.tol
    print(f"worst d {worst:.3e} at row {row} dim {dim}: {a[row, dim]} for {b[row, dim]}, allowed {args.tol:.3e} {'ok' if passed else 'FAIL'}")
    return 0 if passed else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        sys.exit(f"compare_full_vectors: {error}")
