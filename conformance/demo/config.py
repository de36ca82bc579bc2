"""The sizes of the demo model, shared by training, export and check.

The length of every row with a K-quant type is a multiple of 256, its block length.
"""

import types

CONFIG = types.SimpleNamespace(
    vocabulary=1536, embedding=256, blocks=4, heads=4, kv_heads=2, head_dim=64, feed_forward=512,
    context=512, story=256,  # tokens; a story fits in 256
    rope_base=10000.0, norm_epsilon=1e-4,
)
