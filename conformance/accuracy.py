#!/usr/bin/env python3
"""Measures what precision fast costs, beside what llama.cpp's own ways cost, and prints a table.

    accuracy.py [--pesti bin/pesti] [--activations WAY,WAY] [--tokens N] [--json FILE]

On each of the three models, the logits of every position of testdata/mixed.txt,
prose and code, are held against ours in precision exact: those of precision fast,
by every program of the plan, and llama.cpp's, by the Python in PESTI_PEER that
`make peer` sets up. Where that is missing, ours are measured alone. Exits 1 where
the mean divergence is above half of llama.cpp's, or fewer positions have the
same most likely token than with llama.cpp's.
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
ACTIVATIONS = ("q8x2", "mixed")  # those that are to lose at most half of what llama.cpp does
COLUMNS = ("model", "activations", "tokens", "mean KL of fast", "by program", "top-1", "mean KL of llama.cpp", "top-1", "must: half, top-1", "aim: 1e-4, 99.5 %")


class AccuracyError(Exception):
    """One line: what failed, and what it said."""


def run(*command, text=None):
    """Standard output of a program."""
    command = [str(word) for word in command]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise AccuracyError(f"{' '.join(command[:3])}: exit code {done.returncode}: {said[0]}")
    return done.stdout


def peer_python():
    """The Python that has llama.cpp, None where there is none."""
    name = os.environ.get("PESTI_PEER") or str(HERE.parent / ".peer" / "bin" / "python")
    return shutil.which(name)


def programs(pesti, *arguments):
    """What compare finds in the steps of each program."""
    return json.loads(run(pesti, "compare", *arguments, "--json"))["programs"]


def measure(pesti, peer, model, tokens, ways):
    """What was found on one model, as --json writes it."""
    ids = json.loads(run(pesti, "tokenize", model, "--ids", text=TEXT.read_text()))[:tokens]
    listed = ",".join(map(str, ids))
    with tempfile.TemporaryDirectory() as scratch:
        exact, theirs = pathlib.Path(scratch, "exact"), pathlib.Path(scratch, "theirs")
        run(pesti, "dump", model, "--ids", listed, "-o", exact)
        found = {"model": model.name, "tokens": len(ids), "fast": {way: programs(pesti, exact, model, "--precision", "fast", "--activations", way) for way in ways}}
        if peer:
            run(peer, HERE / "llamacpp" / "logits.py", model, "--ids", listed, "-o", theirs)
            shutil.copy(exact / "tokens.npy", theirs)  # for compare, which sees that both are of the same tokens
            found["llama.cpp"] = programs(pesti, exact, theirs)
    return found


def divergence(program):
    """The mean divergence in the steps of one program; an infinite one is null in JSON."""
    return math.inf if program["mean_kl"] is None else program["mean_kl"]


def worst(found):
    """The largest mean divergence and the smallest share of positions with the same most likely token."""
    return max(map(divergence, found)), min(p["top1"] for p in found)


def row(found, way):
    """One line of the table, and whether what must hold does."""
    ours = found["fast"][way]
    kl, top1 = worst(ours)
    their_kl, their_top1 = worst(found["llama.cpp"]) if "llama.cpp" in found else (None, None)
    must = their_kl is None or kl <= their_kl / 2 and top1 >= their_top1
    aim = kl <= AIM_KL and top1 >= AIM_TOP1
    cells = (
        found["model"], way, found["tokens"], f"{kl:.1e}", ", ".join(f"{p['program']} {divergence(p):.1e}" for p in ours), f"{top1:.2%}",
        "-" if their_kl is None else f"{their_kl:.1e}", "-" if their_kl is None else f"{their_top1:.2%}",
        "-" if their_kl is None else "ok" if must else "**missed**", "ok" if aim else "**missed**",
    )
    return "| " + " | ".join(map(str, cells)) + " |", must


def main():
    parser = argparse.ArgumentParser(description="Measure what precision fast costs, beside llama.cpp.")
    parser.add_argument("--pesti", type=pathlib.Path, default=HERE.parent / "bin" / "pesti")
    parser.add_argument("--activations", default=",".join(ACTIVATIONS), metavar="WAY,WAY", help="what fast rounds to, one line of the table for each (default %(default)s)")
    parser.add_argument("--tokens", type=int, metavar="N", help="only the first N tokens of the text")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all that was found")
    args = parser.parse_args()
    peer, ways = peer_python(), args.activations.split(",")
    if not peer:
        print("accuracy: found no Python with llama.cpp, so ours alone; run make peer, or name one in PESTI_PEER", file=sys.stderr)
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS), flush=True)
    all_found, all_hold = [], True
    for model in models.MODELS:
        found = measure(args.pesti, peer, models.models_folder() / model.name, args.tokens, ways)
        all_found.append(found)
        for way in ways:
            line, holds = row(found, way)
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
