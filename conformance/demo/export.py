"""Writes trained weights as a GGUF file of float32 tensors.

    python export.py IN.npz OUT.gguf

quantize/ in this folder makes the small model from it.
"""

import sys

import gguf
import numpy as np

import bpe
from config import CONFIG as C

TRAINING_STATE = ("m:", "v:", "step", "tokens", "merges")


def main(source, target):
    data = np.load(source)
    tokens, merges = data["tokens"].tolist(), data["merges"].tolist()
    eos = tokens.index(bpe.END_OF_TEXT)
    kind = [gguf.TokenType.CONTROL if i == eos else gguf.TokenType.NORMAL for i in range(len(tokens))]

    w = gguf.GGUFWriter(target, "qwen2")
    w.add_name("PESTI demo storyteller")
    w.add_description("Tells short stories. Trained from scratch on stories drawn from a grammar.")
    w.add_license("AGPL-3.0-or-later")
    w.add_languages(["en"])
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_block_count(C.blocks)
    w.add_context_length(C.context)
    w.add_embedding_length(C.embedding)
    w.add_feed_forward_length(C.feed_forward)
    w.add_head_count(C.heads)
    w.add_head_count_kv(C.kv_heads)
    w.add_rope_freq_base(C.rope_base)
    w.add_layer_norm_rms_eps(C.norm_epsilon)
    w.add_vocab_size(len(tokens))
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(kind)
    w.add_token_merges(merges)
    w.add_bos_token_id(eos)
    w.add_eos_token_id(eos)
    w.add_add_bos_token(False)
    for name in data.files:
        if not name.startswith(TRAINING_STATE):
            w.add_tensor(name, data[name])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
