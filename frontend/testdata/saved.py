#!/usr/bin/env python3
"""Prints the keys of a model that describe its architecture: name, type, value.

    saved.py FILE > saved-ARCH.txt

FILE is a tiny model (conformance/tiny) that conformance/llamacpp/save.py has saved with llama.cpp of
llama-cpp-python 0.3.36. An array whose elements are equal is printed as one element.
Needs the Python package gguf.
"""

import sys

import gguf

reader = gguf.GGUFReader(sys.argv[1])
prefix = reader.get_field("general.architecture").contents() + "."
for field in reader.fields.values():
    if not field.name.startswith(prefix):
        continue
    kinds, value = [kind.name.lower() for kind in field.types], field.contents()
    kind = kinds[0]
    if kind == "array":
        kind = f"{kinds[-1]}[{len(value)}]"
        value = ",".join(map(str, value[:1] if len(set(value)) == 1 else value))
    print(field.name[len(prefix):], kind, value, sep="\t")
