#!/usr/bin/env python3
"""Measures the accuracy that precision fast costs, compares it with llama.cpp's, and prints a table.

    accuracy.py [--pesti bin/pesti] [--activations FORMAT,FORMAT] [--tokens N] [--json FILE]

The text is testdata/mixed.txt, prose and code. On each of the three models, the logits
of every position are compared with PESTI's in precision exact: the logits of precision
fast, from every program of the plan, and llama.cpp's. llama.cpp runs in the Python that
`make peer` sets up (PESTI_PEER). If that is missing, only PESTI is measured. Exits with 1
if the mean divergence is above half of llama.cpp's, or if fewer positions than with
llama.cpp have the same most likely token.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import models

HERE = pathlib.Path(__file__).resolve().parent
TEXT = HERE / "testdata" / "mixed.txt"
AIM_KL, AIM_TOP1 = 1e-4, 0.995
ACTIVATIONS = ("q8x2", "mixed")  # each must lose at most half of what llama.cpp loses
COLUMNS = ("model", "activations", "tokens", "mean KL of fast", "by program", "top-1", "mean KL of llama.cpp", "top-1", "must: half, top-1", "aim: 1e-4, 99.5 %")


class AccuracyError(Exception):
    """The message is one line: the command that failed, and its output."""


def run(*command, text=None):
    """The standard output of a program."""
    command = [str(word) for word in command]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise AccuracyError(f"{' '.join(command[:3])}: exit code {done.returncode}: {said[0]}")
    return done.stdout


def llamacpp_python():
    """The Python that has llama.cpp, or None."""
    name = os.environ.get("PESTI_PEER") or str(HERE.parent / ".peer" / "bin" / "python")
    return shutil.which(name)


def programs(pesti, *arguments):
    """The result of compare for each program."""
    return json.loads(run(pesti, "compare", *arguments, "--json"))["programs"]


def measure(pesti, llamacpp, model, tokens, formats):
    """The result for one model, as --json writes it."""
    ids = json.loads(run(pesti, "tokenize", model, "--ids", text=TEXT.read_text()))[:tokens]
    listed = ",".join(map(str, ids))
    with tempfile.TemporaryDirectory() as scratch:
        exact, theirs = pathlib.Path(scratch, "exact"), pathlib.Path(scratch, "theirs")
        run(pesti, "dump", model, "--ids", listed, "-o", exact)
        found = {"model": model.name, "tokens": len(ids), "fast": {activations: programs(pesti, exact, model, "--precision", "fast", "--activations", activations) for activations in formats}}
        if llamacpp:
            run(llamacpp, HERE / "llamacpp" / "logits.py", model, "--ids", listed, "-o", theirs)
            shutil.copy(exact / "tokens.npy", theirs)  # compare checks that both have the same tokens
            found["llama.cpp"] = programs(pesti, exact, theirs)
    return found


def divergence(program):
    """The mean divergence of one program. Infinity is null in JSON."""
    return math.inf if program["mean_kl"] is None else program["mean_kl"]


def worst(found):
    """The largest mean divergence and the smallest share of positions with the same most likely token."""
    return max(map(divergence, found)), min(p["top1"] for p in found)


def row(found, activations):
    """One line of the table, and whether the required bounds are met."""
    ours = found["fast"][activations]
    kl, top1 = worst(ours)
    their_kl, their_top1 = worst(found["llama.cpp"]) if "llama.cpp" in found else (None, None)
    must = their_kl is None or kl <= their_kl / 2 and top1 >= their_top1
    aim = kl <= AIM_KL and top1 >= AIM_TOP1
    cells = (
        found["model"], activations, found["tokens"], f"{kl:.1e}", ", ".join(f"{p['program']} {divergence(p):.1e}" for p in ours), f"{top1:.2%}",
        "-" if their_kl is None else f"{their_kl:.1e}", "-" if their_kl is None else f"{their_top1:.2%}",
        "-" if their_kl is None else "ok" if must else "**missed**", "ok" if aim else "**missed**",
    )
    return "| " + " | ".join(map(str, cells)) + " |", must


def main():
    parser = argparse.ArgumentParser(description="Measure the accuracy that precision fast costs, and compare it with llama.cpp's.")
    parser.add_argument("--pesti", type=pathlib.Path, default=HERE.parent / "bin" / "pesti")
    parser.add_argument("--activations", default=",".join(ACTIVATIONS), metavar="FORMAT,FORMAT", help="activation formats of fast; the table has one line for each (default %(default)s)")
    parser.add_argument("--tokens", type=int, metavar="N", help="only the first N tokens of the text")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results")
    args = parser.parse_args()
    llamacpp, formats = llamacpp_python(), args.activations.split(",")
    if not llamacpp:
        print("accuracy: no Python with llama.cpp, so llama.cpp is not measured; run make peer, or set PESTI_PEER", file=sys.stderr)
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS), flush=True)
    all_found, all_hold = [], True
    for model in models.MODELS:
        found = measure(args.pesti, llamacpp, models.models_folder() / model.name, args.tokens, formats)
        all_found.append(found)
        for activations in formats:
            line, holds = row(found, activations)
            print(line, flush=True)
            all_hold &= holds
    if args.json:
        args.json.write_text(json.dumps(all_found, indent=2) + "\n")
    return 0 if all_hold else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (AccuracyError, OSError, ValueError) as error:
        sys.exit(f"accuracy: {error}")
