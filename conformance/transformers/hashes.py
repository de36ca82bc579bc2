#!/usr/bin/env python3
"""Prints a line for each tensor of each described model: model, tensor, SHA-256 of its bytes."""

import hashlib

import seeded

if __name__ == "__main__":
    for name in seeded.names():
        model = seeded.Description(name)
        for tensor in sorted(model.shapes):
            print(name, tensor, hashlib.sha256(model.weight(tensor).astype("<f4").tobytes()).hexdigest())
