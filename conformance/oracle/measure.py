"""The measure of closeness that all comparisons use, and its bounds.

d of one row is the largest |a - b| / (|b| + median|b|) over its dims, b the
oracle. A plain relative error explodes where b crosses zero; the median of the
row holds it down there. Dividing by the row's largest value instead would hide
everything: a residual stream has a few dims hundreds of times its median.
"""

import numpy as np

TOLERANCE = 1e-4  # of d, everywhere
FLOOR_COUNTS_FROM = 3e-5  # below this the float32 floor does not widen the tolerance
FLOOR_FACTOR = 3
LOGIT_TOLERANCE = 1e-3  # of |Δlogit|, and the margin under which two tokens tie


def deviations(a, b):
    """d's argument per element of a and b [T, n] (b the oracle), as float64 [T, n].

    NaN where either is NaN; 0 where both are equal; inf where b's row is zero
    and a's element is not.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    size = np.abs(b)
    with np.errstate(divide="ignore", invalid="ignore"):
        d = np.abs(a - b) / (size + np.median(size, axis=-1, keepdims=True))
    d[a == b] = 0
    return d


def worst(a, b):
    """(d, row, dim) of the worst element; NaN counts as worse than any number."""
    d = deviations(a, b)
    if d.size == 0:
        return 0.0, 0, 0
    row, dim = np.unravel_index(np.argmax(d), d.shape)  # argmax stops at the first NaN
    return float(d[row, dim]), int(row), int(dim)


def allowed(tolerance, floor):
    """The bound on d where float32 arithmetic alone already costs floor."""
    return max(tolerance, FLOOR_FACTOR * floor) if floor > FLOOR_COUNTS_FROM else tolerance


def margins(logits):
    """Per row: the argmax, and how far the best logit is above the second."""
    best = np.argmax(logits, axis=-1)
    two = np.partition(logits, -2, axis=-1)[:, -2:]
    return best, two[:, 1] - two[:, 0]
