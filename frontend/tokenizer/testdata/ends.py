#!/usr/bin/env python3
"""Prints how llama.cpp takes tokens that a vocabulary types as normal text: name, "end" or "control".

    ends.py NAME... > ends.txt

An end ends generation, and is a control token as well. Names without a meaning are left out. Runs in the
environment that `make peer` builds (llama-cpp-python 0.3.36), with the Python package gguf.
"""

import ctypes
import pathlib
import sys
import tempfile

import gguf
import llama_cpp

silent = llama_cpp.llama_log_callback(lambda _level, _text, _user: None)
llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
params = llama_cpp.llama_model_default_params()
params.vocab_only = True
with tempfile.TemporaryDirectory() as folder:
    for i, name in enumerate(sys.argv[1:]):
        path = str(pathlib.Path(folder) / f"{i}.gguf")
        w = gguf.GGUFWriter(path, "llama")
        w.add_block_count(1), w.add_context_length(8), w.add_embedding_length(32), w.add_feed_forward_length(32), w.add_head_count(1)
        w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre("gpt-2")
        letters = [chr(33 + i) for i in range(90)]
        w.add_token_list([*letters, name]), w.add_token_types([1] * 91), w.add_token_merges(['! "'])
        w.add_eos_token_id(0), w.add_bos_token_id(0)
        w.write_header_to_file(), w.write_kv_data_to_file(), w.close()
        vocab = llama_cpp.llama_model_get_vocab(llama_cpp.llama_model_load_from_file(path.encode(), params))
        if llama_cpp.llama_vocab_is_eog(vocab, 90):
            print(name, "end", sep="\t")
        elif llama_cpp.llama_vocab_is_control(vocab, 90):
            print(name, "control", sep="\t")
