"""Prints as JSON what the Python package gguf reads from a GGUF file: metadata,
tensor directory, and the SHA-256 of each tensor's dequantized float32 values.
NaNs are all written as 0x7fc00000, since their payload is not compared."""

import hashlib
import json
import struct
import sys

import gguf
import numpy as np

ROWS = 512  # dequantized at a time, as one long row: fast, and little memory


class Reader(gguf.GGUFReader):
    """The package's reader, less its several numpy views for each element of an
    array, which take half a minute for a large vocabulary: an array of numbers
    is one part, and of an array of strings each is one."""

    def _get_field_parts(self, orig_offs, raw_type):
        if raw_type != gguf.GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        data = memoryview(self.data)
        kind, count = struct.unpack_from("<IQ", data, orig_offs)
        kind, at = gguf.GGUFValueType(kind), orig_offs + 12
        if kind == gguf.GGUFValueType.STRING:
            parts = []
            for _ in range(count):
                end = at + 8 + struct.unpack_from("<Q", data, at)[0]
                parts.append(data[at + 8 : end])
                at = end
        else:
            parts = [self._get(at, self.gguf_scalar_to_np[kind], count)]
            at += parts[0].nbytes
        return at - orig_offs, parts, list(range(len(parts))), [raw_type, kind]


def values(field):
    """Returns a metadata field as a plain value; a string in hex, an array of
    strings as the SHA-256 of each with its length before it."""
    is_array = field.types[0] == gguf.GGUFValueType.ARRAY
    if field.types[-1] != gguf.GGUFValueType.STRING:
        got = [x for i in field.data for x in field.parts[i].tolist()]
        return got if is_array else got[0]
    strings = [bytes(field.parts[i]) for i in field.data]
    if not is_array:
        return strings[0].hex()
    h = hashlib.sha256()
    for s in strings:
        h.update(len(s).to_bytes(8, "little") + s)
    return h.hexdigest()


def digest(tensor):
    rows = tensor.data.reshape(-1, tensor.data.shape[-1])
    h = hashlib.sha256()
    for i in range(0, len(rows), ROWS):
        x = np.ascontiguousarray(gguf.dequantize(rows[i : i + ROWS].reshape(1, -1), tensor.tensor_type), dtype=np.float32)
        bits = x.view(np.uint32).copy()
        bits[np.isnan(x)] = 0x7FC00000
        h.update(bits.tobytes())
    return h.hexdigest()


reader = Reader(sys.argv[1])
json.dump(
    {
        "metadata": [
            {"key": k, "types": [gguf.GGUFValueType(t).name for t in f.types], "value": values(f)}
            for k, f in reader.fields.items()
            if not k.startswith("GGUF.")
        ],
        "tensors": [
            {
                "name": t.name,
                "type": t.tensor_type.name,
                "dims": [int(d) for d in t.shape],
                "offset": int(t.data_offset),
                "sha256": digest(t),
            }
            for t in reader.tensors
        ],
    },
    sys.stdout,
)
