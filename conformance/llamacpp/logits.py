#!/usr/bin/env python3
"""llama.cpp's logits of every position of a prompt, as an independent reference.

    logits.py MODEL --ids 1,2,3 -o DIR [--cache f32]

DIR receives logits.npy, float32 [T, n_vocab]. All tokens are one batch, on two threads.
Without --cache, everything else is llama.cpp's default: a float16 cache and flash
attention. With --cache f32 the cache is float32, and flash attention is off, because it
would round queries to float16.

Runs in the environment that `make peer` builds.
"""

import argparse
import ctypes
import pathlib
import sys

import llama_cpp
import numpy as np

THREADS = 2


class LlamaError(Exception):
    """The message is one line: the file, what failed, and the last message of llama.cpp."""


class Log:
    """Suppresses what llama.cpp prints, and keeps the last line."""

    def __init__(self):
        self.last = "no message"
        self._callback = llama_cpp.llama_log_callback(self._take)  # keeps a reference for as long as llama.cpp may call it
        llama_cpp.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _take(self, _level, text, _user):
        self.last = text.decode(errors="replace").strip() or self.last


def logits_of(path, ids, exact_cache, log):
    """The logits float32 [T, n_vocab] of the token ids."""
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise LlamaError(f"{path}: llama.cpp cannot load it: {log.last}")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = len(ids)
    params.n_outputs_max_per_seq = len(ids)
    params.n_threads = params.n_threads_batch = THREADS
    if exact_cache:
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise LlamaError(f"{path}: llama.cpp cannot create a context of {len(ids)} tokens: {log.last}")
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for at, token in enumerate(ids):
        if not 0 <= token < vocabulary:
            raise LlamaError(f"--ids: id {token} is outside the vocabulary of {vocabulary}")
        batch.token[at], batch.pos[at], batch.logits[at] = token, at, 1
        batch.n_seq_id[at], batch.seq_id[at][0] = 1, 0
    if status := llama_cpp.llama_decode(context, batch):
        raise LlamaError(f"{path}: llama.cpp fails with {status} on {len(ids)} tokens: {log.last}")
    # The array belongs to the context, which is not freed before the process ends.
    return np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(ids), vocabulary))


def main(argv=None):
    parser = argparse.ArgumentParser(description="llama.cpp's logits of every position.")
    parser.add_argument("model", metavar="MODEL", type=pathlib.Path)
    parser.add_argument("--ids", required=True, help="token ids, separated by commas")
    parser.add_argument("-o", dest="out", metavar="DIR", required=True, type=pathlib.Path)
    parser.add_argument("--cache", choices=("f32",), help="keep keys and values in float32")
    args = parser.parse_args(argv)
    ids = [int(word) for word in args.ids.split(",")]
    logits = logits_of(args.model, ids, args.cache == "f32", Log())
    args.out.mkdir(parents=True, exist_ok=True)
    np.save(args.out / "logits.npy", logits)


if __name__ == "__main__":
    try:
        main()
    except (LlamaError, OSError, ValueError) as error:
        sys.exit(f"logits: {error}")
