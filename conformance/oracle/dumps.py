"""Reads the folders that ref_forward.py and `pesti dump` write."""

import json
import pathlib
import re

import numpy as np


class DumpError(Exception):
    """A folder is not a dump. The message is one line that names the file."""


class Dump:
    """tokens [T], layers (residual streams [T, n_embd]) and logits [rows, n_vocab] of one pass."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.tokens = self._array("tokens.npy")
        names = sorted(path.name for path in self.folder.iterdir() if re.fullmatch(r"layer_\d+\.npy", path.name))
        want = [f"layer_{n:02d}.npy" for n in range(len(names))]
        if not names or sorted(want) != names:
            raise DumpError(f"{self.folder}: found {len(names)} layer files, want layer_00.npy, layer_01.npy, … without a gap")
        self.layers = [self._array(name) for name in want]
        self.logits = self._array("logits.npy")
        # Only the oracle writes these: the float32 floor, and the positions of its logits.
        self.floor = self._json("floor.json", {"layers": [0.0] * len(self.layers)})
        self.logit_rows = slice(*self._json("oracle.json", {"logit_rows": [0, len(self.tokens)]})["logit_rows"])

    def _array(self, name):
        path = self.folder / name
        try:
            return np.load(path)
        except ValueError as error:
            raise DumpError(f"{path}: not an array file: {error}") from error

    def _json(self, name, default):
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else default
