"""Reads hyper-parameters and dequantized weights from a GGUF file for the oracle.

The package `gguf` reads and dequantizes (to float32); this module computes nothing.
Format: the GGUF specification, and the metadata keys of the architectures below.
"""

import math
import struct
from dataclasses import dataclass
from types import MappingProxyType

import gguf
import numpy as np

from blocks import yarn_magnitude

# Facts of an architecture that its file does not state.
ARCHITECTURES = MappingProxyType({
    "llama": {"rope": "pairs"},
    "qwen2": {"rope": "halves"},
    "qwen3": {"rope": "halves"},
    "gemma3": {"rope": "halves", "scale_embeddings": True, "activation": "gelu_tanh", "pattern": 6, "window_base": 10_000.0,
               "scores_by_width": 62},  # blocks of the 27B model, whose query_pre_attn_scalar is hidden_size / heads
})


class ModelError(Exception):
    """The oracle does not support a file. The message is one line with what and why."""


class Reader(gguf.GGUFReader):
    """The package's reader, with each array read as one block.

    The original creates several numpy views per element, which takes half a minute
    for a vocabulary of 262,144. The resulting fields are the same.
    """

    def _get_field_parts(self, orig_offs, raw_type):
        if raw_type != gguf.GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        data, offset = np.asarray(self.data), orig_offs + 12
        kind, count = struct.unpack_from("<IQ", data, orig_offs)
        kind = gguf.GGUFValueType(kind)
        if kind == gguf.GGUFValueType.STRING:
            parts = []
            for _ in range(count):
                end = offset + 8 + struct.unpack_from("<Q", data, offset)[0]
                parts.append(data[offset + 8:end])
                offset = end
        elif kind in self.gguf_scalar_to_np:
            parts = [self._get(offset, self.gguf_scalar_to_np[kind], count)]
            offset += parts[0].nbytes
        else:
            raise ModelError(f"array of {kind.name} at byte {orig_offs}, want an array of numbers or strings")
        return offset - orig_offs, parts, list(range(len(parts))), [gguf.GGUFValueType.ARRAY, kind]


@dataclass(frozen=True)
class Yarn:
    """Scaling by YaRN: see blocks.yarn_frequencies."""

    factor: float
    context: int
    fast: float
    slow: float


@dataclass(frozen=True)
class Layer:
    """Hyper-parameters of one block. window is None if attention is global."""

    heads: int
    kv_heads: int
    head_dim: int
    rope_layout: str
    rope_width: int
    rope_base: float
    rope_factor: float
    rope_magnitude: float
    yarn: Yarn | None
    window: int | None
    scale: float
    eps: float


class Model:
    """An open GGUF file."""

    llama3 = None  # or (factor, low, high, context): compute frequencies by that formula instead of the file's tensor

    def __init__(self, path):
        self.path = str(path)
        try:
            self._reader = Reader(path)
        except (ValueError, struct.error) as error:
            raise ModelError(f"{self.path}: not a readable GGUF file: {error}") from error
        self._tensors = {t.name: t for t in self._reader.tensors}
        self.architecture = self.metadata("general.architecture")
        if self.architecture not in ARCHITECTURES:
            raise ModelError(f"{self.path}: general.architecture is {self.architecture!r}, want one of {', '.join(ARCHITECTURES)}")
        self.facts = ARCHITECTURES[self.architecture]
        self.embedding_length = self._key("embedding_length")
        self.layers = [self._layer(i) for i in range(self._key("block_count"))]
        self.eps = self._key("attention.layer_norm_rms_epsilon")

    def metadata(self, key, default=None):
        """The value of a metadata key, or default if the file lacks it."""
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def has(self, name):
        return name in self._tensors

    def weight(self, name, dtype, rows=None):
        """A tensor as an array [rows, columns] (or [n]) of dtype.

        rows, an index or slice of the first axis, limits which rows are dequantized.
        """
        tensor = self._tensor(name)
        data = tensor.data if rows is None else tensor.data[rows]
        return gguf.quants.dequantize(data, tensor.tensor_type).astype(dtype, copy=False)

    def optional(self, name, dtype):
        """weight, or None if the file lacks it."""
        return self.weight(name, dtype) if self.has(name) else None

    def rows(self, name):
        """Number of rows of a matrix: its second GGUF dimension."""
        return int(self._tensor(name).shape[1])

    def _tensor(self, name):
        if name not in self._tensors:
            raise ModelError(f"{self.path}: tensor {name} is missing")
        return self._tensors[name]

    def _key(self, name, default=None, layer=None):
        """A key under the architecture's prefix; an array has one value per layer."""
        value = self.metadata(f"{self.architecture}.{name}", default)
        if value is None:
            raise ModelError(f"{self.path}: {self.architecture}.{name} is missing")
        return value[layer] if isinstance(value, list) and layer is not None else value

    def _layer(self, i):
        heads = self._key("attention.head_count", layer=i)
        head_dim = self._key("attention.key_length", self.embedding_length // heads)
        sliding = self._is_sliding(i)
        base, factor, yarn = self._key("rope.freq_base", 10_000.0), 1.0, None
        if sliding and "window_base" in self.facts:
            # A sliding layer attends to near positions only, so neither the long base nor the scaling applies.
            base = self._key("rope.freq_base_swa", self.facts["window_base"])
        else:
            factor, yarn = self._scaling()
        return Layer(
            heads=heads,
            kv_heads=self._key("attention.head_count_kv", heads, layer=i),
            head_dim=head_dim,
            rope_layout=self.facts["rope"],
            rope_width=self._key("rope.dimension_count", head_dim),
            rope_base=base,
            rope_factor=factor,
            rope_magnitude=self._key("rope.scaling.attn_factor", 1.0) * (yarn_magnitude(yarn.factor) if yarn else 1.0),
            yarn=yarn,
            window=self._key("attention.sliding_window") if sliding else None,
            scale=self._key("attention.scale", self._usual_scale(heads, head_dim)),
            eps=self._key("attention.layer_norm_rms_epsilon"),
        )

    def _is_sliding(self, i):
        """Whether block i has a window. The pattern is a flag per layer, or a period whose last layer is global; an architecture without a pattern has no windows."""
        if "pattern" not in self.facts or not self._key("attention.sliding_window", 0):
            return False
        pattern = self._key("attention.sliding_window_pattern", self.facts["pattern"])
        if isinstance(pattern, list):
            return bool(pattern[i])
        return (i + 1) % pattern != 0

    def _usual_scale(self, heads, head_dim):
        by_width = self._key("block_count") == self.facts.get("scores_by_width")
        return 1 / math.sqrt(self.embedding_length / heads if by_width else head_dim)

    def _scaling(self):
        """(linear factor, YaRN or None)"""
        kind = self._key("rope.scaling.type", "linear")
        if kind == "none":
            return 1.0, None
        if kind == "linear":
            return float(self._key("rope.scaling.factor", self._key("rope.scale_linear", 1.0))), None
        if kind == "yarn":
            return 1.0, Yarn(
                factor=float(self._key("rope.scaling.factor")),
                context=self._key("rope.scaling.original_context_length", 0) or self._key("context_length"),
                fast=self._key("rope.scaling.yarn_beta_fast", 32.0),
                slow=self._key("rope.scaling.yarn_beta_slow", 1.0),
            )
        raise ModelError(f"{self.path}: {self.architecture}.rope.scaling.type is {kind!r}, want none, linear or yarn")
