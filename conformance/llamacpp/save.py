#!/usr/bin/env python3
"""Saves a model with llama.cpp, which writes every key that it knows.

    save.py MODEL FILE

Runs in the environment that `make peer` builds.
"""

import ctypes
import pathlib
import sys

import llama_cpp


def main(model, out):
    silent = llama_cpp.llama_log_callback(lambda _level, _text, _user: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    params = llama_cpp.llama_model_default_params()
    # The weights must lie as the file has them: llama.cpp writes packed ones as they are, or crashes.
    params.use_mmap = params.use_extra_bufts = False
    handle = llama_cpp.llama_model_load_from_file(model.encode(), params)
    if not handle:
        sys.exit(f"save: {model}: llama.cpp cannot load it")
    llama_cpp.llama_model_save_to_file(handle, out.encode())
    if not pathlib.Path(out).exists():
        sys.exit(f"save: {out}: llama.cpp wrote no file")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: save.py MODEL FILE")
    main(*sys.argv[1:])
