"""The pieces of a transformer, one plain function each.

Every function takes and returns numpy arrays and keeps the dtype of its first
argument, so the same code computes the float64 oracle and its float32 floor.
Rows are tokens: x has the shape [T, width] unless stated otherwise.
"""

import math

import numpy as np


def rms_norm(x, weight, eps):
    """x / sqrt(mean(x²) + eps) × weight over the last axis (arXiv:1910.07467).

    Gemma's (1 + w) is already folded into the weight of a GGUF file.
    """
    scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return x / scale * weight


def linear(x, weight, bias=None):
    """x [T, in] × weight [out, in] transposed, plus bias [out] if given."""
    y = x @ weight.T
    return y if bias is None else y + bias


def silu(x):
    """x × sigmoid(x). exp underflows or overflows for large |x|, and the result is then the correct limit."""
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


def gelu_tanh(x):
    """The tanh form of GELU (arXiv:1606.08415, section 2), which gemma uses."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def softmax(x):
    """Softmax over the last axis; -inf entries get weight 0."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rope_frequencies(width, base, divisors=None, factor=1.0):
    """Angle per position of each of the width/2 rotated pairs (arXiv:2104.09864).

    divisors is the file's rope_freqs.weight [width/2], factor its linear scaling.
    Both divide the frequencies.
    """
    freq = float(base) ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    if divisors is not None:
        freq = freq / np.asarray(divisors, dtype=np.float64)
    return freq / factor


def yarn_frequencies(freq, base, factor, context, fast, slow):
    """YaRN (arXiv:2309.00071). A pair with fewer than slow turns in the original context
    gets linear scaling by factor. A pair with more than fast turns keeps its frequency.
    Between the two is a linear ramp.

    In the paper (section 3.2) the ramp is linear in the number of turns. Here it is
    linear in the pair's index, and starts and ends at whole indices, as in the program
    published with the paper (find_correction_range, linear_ramp_mask). Models were
    trained with that program.
    """
    # The number of turns is geometric in the pair's index, so its logarithm gives the index.
    ratio = math.log(base) * 2 / (2 * len(freq))
    most = math.log(context / (2 * math.pi))
    low = max(math.floor((most - math.log(fast)) / ratio), 0)
    high = min(math.ceil((most - math.log(slow)) / ratio), 2 * len(freq) - 1)
    share = np.clip((np.arange(len(freq)) - low) / max(high - low, 0.001), 0, 1)
    return freq / factor * share + freq * (1 - share)


def yarn_magnitude(factor):
    """The factor on q and on k: the square root of 1/t in section 3.4 of the paper."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


def llama3_frequencies(freq, factor, low, high, context):
    """Llama 3.1's frequencies, by the formula of its reference code (apply_scaling).
    Wavelengths above context/low are multiplied by factor. Wavelengths below context/high
    are unchanged. Between the two the frequencies are interpolated.
    """
    scaled = []
    for f in freq:
        wave = 2 * math.pi / f
        if wave < context / high:
            scaled.append(f)
        elif wave > context / low:
            scaled.append(f / factor)
        else:
            smooth = (context / wave - low) / (high - low)
            scaled.append((1 - smooth) * f / factor + smooth * f)
    return np.array(scaled)


def rope(x, positions, freq, layout, magnitude=1.0):
    """Rotate the first 2·len(freq) dims of every head of x [T, heads, head_dim], and
    multiply them by magnitude.

    layout "pairs" rotates dims (2i, 2i+1) together, "halves" dims (i, i + n/2).
    The angles are computed in float64 for every dtype, as a careful float32
    implementation does: at position 10⁴ a float32 angle has lost three digits.
    """
    n = 2 * len(freq)
    first, second = {
        "pairs": (slice(0, n, 2), slice(1, n, 2)),
        "halves": (slice(0, n // 2), slice(n // 2, n)),
    }[layout]
    angle = np.asarray(positions, dtype=np.float64)[:, None, None] * freq
    cos, sin = (magnitude * np.cos(angle)).astype(x.dtype), (magnitude * np.sin(angle)).astype(x.dtype)
    y = x.copy()
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


def causal_mask(tokens, window=None):
    """True where query position i (row) may attend to key position j (column).

    A window of n is the n newest positions, including the query's own.
    """
    i = np.arange(tokens)[:, None]
    j = np.arange(tokens)[None, :]
    mask = j <= i
    return mask if window is None else mask & (j > i - window)


def attention(q, k, v, scale, mask):
    """Grouped-query attention (arXiv:2305.13245).

    q [T, H, D], k [T, G, D], v [T, G, E] with H a multiple of G; consecutive
    heads of q share one head of k and v. Returns [T, H, E].
    """
    group = q.shape[1] // k.shape[1]
    out = np.empty((q.shape[0], q.shape[1], v.shape[2]), dtype=q.dtype)
    for h in range(q.shape[1]):
        scores = (q[:, h] @ k[:, h // group].T) * scale
        scores[~mask] = -np.inf
        out[:, h] = softmax(scores) @ v[:, h // group]
    return out
