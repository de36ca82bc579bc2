#!/usr/bin/env python3
"""Logits of transformers on small random models, for all positions: a witness that is stored.

    logits.py [--check] [NAME …] -o DIR

Each NAME (all, if none is given) is a file of the folder models. DIR receives NAME.txt: for
each token a line with its float32 logits, little-endian, in base64. With --check the files of
DIR are compared instead: a normalized square error above 1e-14 is an error.

`make transformers` builds the environment and runs this program.

The model computes in float64. transformers converts some values to float32 whatever the
type of the model (norms, softmax, angles of RoPE), so the name float32 stands for float64
while it runs.
"""

import argparse
import base64
import fnmatch
import pathlib
import sys

import numpy as np
import torch

import seeded
from seeded import Description, SeededError, expand

torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
torch.cuda.is_current_stream_capturing = lambda: False  # transformers asks, and the libraries of stubs.py cannot answer

import transformers  # noqa: E402  (its modules read torch.float32 when they are imported)

SAME = 1e-14  # float32 rounding of stored logits is 1e-15

# Names of parameters in transformers, and of tensors in GGUF files, in most architectures. A description adds others.
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "model.layers.*.input_layernorm.weight": "blk.*.attn_norm.weight",
    "model.layers.*.self_attn.q_proj.weight": "blk.*.attn_q.weight",
    "model.layers.*.self_attn.k_proj.weight": "blk.*.attn_k.weight",
    "model.layers.*.self_attn.v_proj.weight": "blk.*.attn_v.weight",
    "model.layers.*.self_attn.q_proj.bias": "blk.*.attn_q.bias",
    "model.layers.*.self_attn.k_proj.bias": "blk.*.attn_k.bias",
    "model.layers.*.self_attn.v_proj.bias": "blk.*.attn_v.bias",
    "model.layers.*.self_attn.o_proj.weight": "blk.*.attn_output.weight",
    "model.layers.*.self_attn.q_norm.weight": "blk.*.attn_q_norm.weight",
    "model.layers.*.self_attn.k_norm.weight": "blk.*.attn_k_norm.weight",
    "model.layers.*.post_attention_layernorm.weight": "blk.*.ffn_norm.weight",
    "model.layers.*.mlp.gate_proj.weight": "blk.*.ffn_gate.weight",
    "model.layers.*.mlp.up_proj.weight": "blk.*.ffn_up.weight",
    "model.layers.*.mlp.down_proj.weight": "blk.*.ffn_down.weight",
}


def unpair(w, heads):
    """The rows of a head in the order of transformers. The converter of files with RoPE on pairs puts row i of
    the first half and row i of the second half of each head next to each other; this is its inverse."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


# What turns a tensor of the file, in float64, into the parameter: the inverse of the converter of llama.cpp.
TRANSFORMS = {
    "pairs": unpair,  # number of heads
    "minus": lambda w, x: w - x,
}


def parameters(model):
    """The parameters of transformers by name, in float64, and the tensors that they are made of."""
    own = model.transformers.get("names", {})
    names = {theirs: ours for theirs, ours in NAMES.items() if ours not in own.values()} | own
    made, used = {}, set()
    for theirs, ours in names.items():
        for parameter, tensor in zip(expand(theirs, model.layers), expand(ours, model.layers)):
            if tensor not in model.shapes:
                continue
            w = model.weight(tensor).astype(np.float64)
            for pattern, (kind, argument) in model.transformers.get("transforms", {}).items():
                if fnmatch.fnmatchcase(tensor, pattern):
                    w = TRANSFORMS[kind](w, argument)
            made[parameter] = torch.from_numpy(np.ascontiguousarray(w))
            used.add(tensor)
    if rest := sorted(model.shapes.keys() - used):
        raise SeededError(f"{model.name}: no parameter is made of tensor {rest[0]}")
    return made


def logits_of(model):
    """The logits float32 [T, n_vocab]."""
    facts = model.transformers
    config = getattr(transformers, facts["class"].removesuffix("ForCausalLM") + "Config" if "config_class" not in facts else facts["config_class"])
    config = config(**facts["config"], use_cache=False)
    config._attn_implementation = "eager"
    network = getattr(transformers, facts["class"])(config).double().eval()
    made = parameters(model)
    missing, unexpected = network.load_state_dict(made, strict=False)
    if config.tie_word_embeddings:
        missing = [name for name in missing if name != "lm_head.weight"]
    if missing or unexpected:
        raise SeededError(f"{model.name}: parameters without a tensor: {missing}; tensors without a parameter: {unexpected}")
    network.tie_weights()
    with torch.no_grad():
        logits = network(torch.tensor([model.tokens])).logits[0]
    if logits.dtype != torch.float64:
        raise SeededError(f"{model.name}: logits are {logits.dtype}, want float64")
    return logits.numpy().astype("<f4")


def square_error(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(((a - b) ** 2).sum() / (b**2).sum())


def main(argv=None):
    parser = argparse.ArgumentParser(description="Logits of transformers on small random models.")
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("-o", dest="out", metavar="DIR", required=True, type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="compare with the files of DIR")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or seeded.names():
        logits, path = logits_of(Description(name)), args.out / f"{name}.txt"
        if args.check:
            stored = np.array([np.frombuffer(base64.b64decode(line), dtype="<f4") for line in path.read_text().split()])
            e = square_error(logits, stored) if stored.shape == logits.shape else np.inf
            print(f"{name}: {e:.1e}")
            if not e <= SAME:
                raise SeededError(f"{path}: differs from transformers by {e:.1e}, want at most {SAME:.0e}; make transformers writes it anew")
        else:
            path.write_text("".join(base64.b64encode(row.tobytes()).decode() + "\n" for row in logits))
            print(f"{name}: {logits.shape[0]} tokens, {logits.shape[1]} logits, rms {np.sqrt((logits.astype(np.float64)**2).mean()):.2f}")


if __name__ == "__main__":
    try:
        main()
    except (SeededError, OSError) as error:
        sys.exit(f"logits: {error}")
