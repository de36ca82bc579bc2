"""The error measure of all comparisons, and its bounds.

d of a row is the largest |a - b| / (|b| + median|b|) over its dims; b is the oracle.
A plain relative error has no limit where b crosses zero; the median of the row
prevents that. Dividing by the row's largest value instead would hide most errors,
because a few dims of a residual stream are hundreds of times its median.
"""

import numpy as np

TOLERANCE = 1e-4  # of d, everywhere
FLOOR_COUNTS_FROM = 3e-5  # below this the float32 floor does not widen the tolerance
FLOOR_FACTOR = 3
LOGIT_TOLERANCE = 1e-3  # of |Δlogit|; tokens with a smaller margin count as tied


def deviations(a, b):
    """The quotient in d for each element of a and b [T, n], as float64 [T, n]; b is the oracle.

    It is NaN where either is NaN, 0 where both are equal, and inf where b's row is
    zero and a's element is not.
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
    """The bound on d for a layer with the given float32 floor."""
    return max(tolerance, FLOOR_FACTOR * floor) if floor > FLOOR_COUNTS_FROM else tolerance


def margins(logits):
    """Per row: the argmax, and the difference between the best and the second-best logit."""
    best = np.argmax(logits, axis=-1)
    two = np.partition(logits, -2, axis=-1)[:, -2:]
    return best, two[:, 1] - two[:, 0]
