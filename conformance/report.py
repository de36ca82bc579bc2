#!/usr/bin/env python3
"""Measures `pesti dump` against the oracle and prints the table of results.

    report.py [--pesti bin/pesti] [--write CONFORMANCE.md]

Every model (the three real ones and the embedded demo) runs every prompt of
testdata/prompts.json. With --write the table replaces the text between the marker
lines of that file. Exits with 1 if a bound is exceeded.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

import models

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "oracle"))
import compare_all_layers  # noqa: E402
import dumps  # noqa: E402
import measure  # noqa: E402
import ref_forward  # noqa: E402

BEGIN, END = "<!-- results: written by conformance/report.py -->", "<!-- end of results -->"

COLUMNS = ("model", "prompt", "tokens", "worst d", "allowed there", "float32 floor there", "worst \\|Δlogit\\|", "argmax", "verdict")


class ReportError(Exception):
    """The message is one line: what went wrong, and where."""


def pesti(program, *arguments, text=None):
    """The standard output of one run of the program."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise ReportError(f"{' '.join(command[:2])}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def row(program, name, model, file, prompt, text):
    """One line of the table, and whether all bounds are met. The oracle reads the model from file."""
    ids = json.loads(pesti(program, "tokenize", model, "--ids", text=text))
    with tempfile.TemporaryDirectory() as scratch:
        theirs, ours = pathlib.Path(scratch, "oracle"), pathlib.Path(scratch, "pesti")
        listed = ",".join(map(str, ids))
        with contextlib.redirect_stdout(sys.stderr):
            ref_forward.main([str(file), "--ids", listed, "-o", str(theirs), "--floor"])
        pesti(program, "dump", model, "--ids", listed, "-o", ours)
        oracle = dumps.Dump(theirs)
        *layers, logits, argmax = compare_all_layers.compare(dumps.Dump(ours), oracle, measure.TOLERANCE)
    # The layer that is closest to its own bound. Another layer may have a larger d.
    n, worst = max(enumerate(layers), key=lambda item: item[1].worst / item[1].allowed)
    passed = all(finding.passed for finding in (*layers, logits, argmax))
    cells = (
        name, prompt, len(ids), f"{worst.worst:.1e} ({worst.what})", f"{worst.allowed:.1e}", f"{oracle.floor['layers'][n]:.1e}",
        f"{logits.worst:.1e}", f"{argmax.worst:.0f} wrong {argmax.where}", "ok" if passed else "**FAIL**",
    )
    return "| " + " | ".join(map(str, cells)) + " |", passed


def replace_between(text, table):
    """The text with everything between the marker lines replaced."""
    before, found, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ReportError(f"expected the lines {BEGIN!r} and {END!r}, to write the table between them")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main():
    parser = argparse.ArgumentParser(description="Measure pesti against the oracle.")
    parser.add_argument("--pesti", type=pathlib.Path, default=HERE.parent / "bin" / "pesti")
    parser.add_argument("--write", metavar="FILE", type=pathlib.Path)
    args = parser.parse_args()
    sources = [(model.name.removesuffix(".gguf"), path := models.models_folder() / model.name, path) for model in models.MODELS]
    sources.append(("demo", "demo", HERE / "demo" / "demo.gguf"))
    prompts = json.loads((HERE / "testdata" / "prompts.json").read_text())

    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    all_passed = True
    for name, model, file in sources:
        for prompt, text in prompts.items():
            line, passed = row(args.pesti, name, model, file, prompt, text)
            lines.append(line)
            all_passed &= passed
    table = "\n".join(lines)
    print(table)
    if args.write:
        args.write.write_text(replace_between(args.write.read_text(), table))
    return 0 if all_passed else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ReportError, dumps.DumpError, ref_forward.ModelError, OSError, ValueError) as error:
        sys.exit(f"report: {error}")
