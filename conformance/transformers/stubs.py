#!/usr/bin/env python3
"""Writes empty CUDA libraries, so that torch's Linux wheel imports without three gigabytes of them.

    stubs.py DIR

The wheel links CUDA libraries, although nothing here computes on a GPU. DIR receives one
library for each that the wheel needs and the system lacks. Together they define every symbol
that torch's own libraries do not, so that the dynamic linker finds them. Each returns
the error that there is no device. Needs a C compiler and readelf.
"""

import pathlib
import re
import subprocess
import sys
import sysconfig

CUDA = re.compile(r"lib(cu|nv|nccl)")  # the names of the libraries that are replaced
NO_DEVICE = 100  # cudaErrorNoDevice


def readelf(flag, path):
    return subprocess.run(["readelf", "--wide", flag, path], capture_output=True, text=True, check=True).stdout


def build(path, source, text, *inputs):
    """Compiles the text into a shared library."""
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{path.name}", "-o", path, source, *inputs], check=True)


def main(argv):
    if len(argv) != 1:
        sys.exit(__doc__.split("\n\n")[1].strip())
    out = pathlib.Path(argv[0])
    own = sorted((pathlib.Path(sysconfig.get_path("purelib")) / "torch" / "lib").glob("*.so*"))
    names = {path.name for path in own}
    needed, missing, defined, functions = set(), set(), set(), set()
    for path in own:
        needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", path))) - names
        for line in readelf("--dyn-syms", path).splitlines():
            columns = line.split()
            if len(columns) < 8 or not columns[0].endswith(":"):
                continue
            name = columns[7].partition("@")[0]
            (missing if columns[6] == "UND" else defined).add(name)
    needed = sorted(name for name in needed if CUDA.match(name))
    if not needed:
        print("torch needs no CUDA library")
        return
    # Symbols of the system's libraries are left out: CUDA's names begin with these.
    missing = sorted(name for name in missing - defined if re.match(r"_*(cu|nv|Nv|CU|nccl)[A-Za-z0-9]", name))
    out.mkdir(parents=True, exist_ok=True)
    # The symbols have versions that name their libraries, which the linker checks in these. It accepts a symbol
    # without a version from a library of another name.
    source, symbols = out / "stubs.c", out / "libstubs.so"
    build(symbols, source, "".join(f"long {name}(void) {{ return {NO_DEVICE}; }}\n" for name in missing))
    for library in needed:
        build(out / library, source, "", "-Wl,--no-as-needed", symbols)
    source.unlink()
    print(f"{len(needed)} libraries, {len(missing)} symbols in {out}")


if __name__ == "__main__":
    main(sys.argv[1:])
