"""Builds the PTX of the CUDA kernels, and checks it, on a machine without a GPU.

    python3 build.py            compile every source for its targets
    python3 build.py --check    fail where a built file differs from the one that is checked in
    python3 build.py --ptxas    assemble every module for every GPU from its target on, fail on spills and
                                on too much shared memory, and write the table kernels.md

The compilers are wheels of NVIDIA, pinned in requirements.txt, each installed into a folder of its
own under .cuda at the root of the repository, since their files would overwrite each other.
"""

import argparse
import concurrent.futures
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = HERE.parents[2] / ".cuda"

# The sources, and the targets that each is compiled for: more than one where a later GPU has instructions
# that make a difference. A target takes the best module of each source.
SOURCES = {
    "rows": [75],
    "top": [75],
    "gemv": [75],
    "gemv_f32": [75, 89],
    "attention": [75, 89],
    "prefill": [75, 89],
    "gemm": [75, 80],
    "gemm_f32": [75],
    "parts": [75],
}

# The package whose NVRTC writes PTX for a target.
COMPILERS = {
    75: ("nvidia-cuda-nvrtc-cu11", "libnvrtc.so.11.2"),
    80: ("nvidia-cuda-nvrtc-cu11", "libnvrtc.so.11.2"),
    89: ("nvidia-cuda-nvrtc-cu12", "libnvrtc.so.12"),
}
ASSEMBLER = "nvidia-cuda-nvcc-cu12"

# The GPUs to assemble for: one of each kind, up to the newest that ptxas 12.9 knows.
GPUS = [75, 80, 86, 89, 90, 100, 121]
STATIC = 48 * 1024  # a block may have no more without asking


def installed(package):
    """The folder of a package, which is installed where it is missing or not the pinned version."""
    line = next(l for l in (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines() if l.startswith(package + "=="))
    folder = TOOLS / line.split()[0]
    if not folder.exists():
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
            f.write(line + "\n")
            f.flush()
            part = folder.with_name(folder.name + ".part")
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--root-user-action=ignore", "--no-deps", "--require-hashes", "--target", part, "-r", f.name], check=True)
            part.rename(folder)
    return folder / "nvidia"


class Compiler:
    """NVRTC, by ctypes. Its builtins are a library in the same folder, which must be loaded first."""

    def __init__(self, package, library):
        lib = installed(package) / "cuda_nvrtc" / "lib"
        builtins = next(p for p in lib.glob("libnvrtc-builtins.so.*"))
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(str(lib / library))

    def compile(self, source, target):
        """The PTX of a source file."""
        program = ctypes.c_void_p()
        self.lib.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None)
        options = [f"--gpu-architecture=compute_{target}", "--std=c++17", f"--include-path={HERE}", "--fmad=true", "--device-as-default-execution-space"]
        array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        status = self.lib.nvrtcCompileProgram(program, len(options), array)
        log = self.text(program, "ProgramLog")
        if status or log.strip():
            sys.exit(f"{source.name} for compute_{target}:\n{log}")
        return self.text(program, "PTX")

    def text(self, program, what):
        size = ctypes.c_size_t()
        getattr(self.lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.lib, f"nvrtcGet{what}")(program, buffer)
        return buffer.value.decode()


def tidy(ptx):
    """PTX without comments, which name the compiler's build, and without empty lines."""
    lines = (re.sub(r"\s*//.*", "", line).rstrip() for line in ptx.splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def built(target):
    """The file of every module of a target, and its PTX. NVRTC 11.8 and 12 do not share a process."""
    sources = [HERE / f"{name}.cu" for name, targets in SOURCES.items() if target in targets]
    compiler = sources and Compiler(*COMPILERS[target])
    return {f"{source.stem}.sm_{target}.ptx": tidy(compiler.compile(source, target)) for source in sources}


def assembled(job):
    """What ptxas says of a module for a GPU: rows of kernel, registers, shared bytes, spilled bytes."""
    ptxas, module, gpu = job
    p = subprocess.run([ptxas, f"-arch=sm_{gpu}", "-v", "-o", "/dev/null", str(module)], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{module.name} for sm_{gpu}:\n{p.stderr}")
    rows = []
    for part in re.split(r"Compiling entry function '", p.stderr)[1:]:
        find = lambda pattern: int((re.search(pattern, part) or [0, 0])[1])
        rows.append((module.name, part.split("'")[0], gpu, find(r"Used (\d+) registers"), find(r"(\d+) bytes smem"),
                     find(r"(\d+) bytes stack frame") + find(r"(\d+) bytes spill stores") + find(r"(\d+) bytes spill loads")))
    return rows


def gate():
    """Checks every module on every GPU from its target on and writes the table."""
    ptxas = installed(ASSEMBLER) / "cuda_nvcc" / "bin" / "ptxas"
    ptxas.chmod(0o755)
    help_ = subprocess.run([ptxas, "--help"], capture_output=True, text=True, check=True).stdout
    newest = max(int(n) for n in re.findall(r"sm_(\d+)\b", help_))
    if GPUS[-1] != newest:
        sys.exit(f"ptxas knows sm_{newest}, and the newest to assemble for is sm_{GPUS[-1]}: add it to GPUS")
    modules = sorted(HERE.glob("*.ptx"))
    target = lambda module: int(module.name.split(".sm_")[1].split(".")[0])
    jobs = [(ptxas, m, g) for m in modules for g in GPUS if g >= target(m)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        rows = [row for rows in pool.map(assembled, jobs) for row in rows]
    bad = [f"{m}: {k} on sm_{g} spills {s} bytes" for m, k, g, _, _, s in rows if s]
    bad += [f"{m}: {k} on sm_{g} has {sh} bytes of shared memory, of {STATIC}" for m, k, g, _, sh, _ in rows if sh > STATIC]
    if bad:
        sys.exit("\n".join(bad))
    table = {}
    for module, kernel, gpu, registers, shared, _ in rows:
        key = (module.split(".")[0], kernel)
        least, most, bytes_ = table.get(key, (999, 0, 0))
        table[key] = min(least, registers), max(most, registers), max(bytes_, shared)
    lines = ["# What the kernels take", "",
             f"By ptxas 12.9 for sm_{', sm_'.join(map(str, GPUS))}: registers of a thread, least and most over modules and GPUs, and bytes of",
             "static shared memory of a kernel. None spills. Written by `build.py --ptxas`.", "",
             "| module | kernel | registers | shared |", "|---|---|---|---|"]
    lines += [f"| {m} | {k} | {lo}–{hi} | {b} |" for (m, k), (lo, hi, b) in sorted(table.items())]
    return {"kernels.md": "\n".join(lines) + "\n"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files that are there, write nothing")
    parser.add_argument("--ptxas", action="store_true", help="assemble instead of compiling")
    args = parser.parse_args()
    if args.ptxas:
        files = gate()
    else:
        for package, _ in COMPILERS.values():
            installed(package)  # here, and not in two processes at a time
        with concurrent.futures.ProcessPoolExecutor(2, max_tasks_per_child=1) as pool:
            files = {name: text for part in pool.map(built, COMPILERS) for name, text in part.items()}
    stale = {f.name for f in HERE.glob("*.ptx")} - set(files) if not args.ptxas else set()
    differ = sorted(stale | {name for name, text in files.items() if not (HERE / name).exists() or (HERE / name).read_text(encoding="utf-8") != text})
    if args.check:
        if differ:
            sys.exit(f"{', '.join(differ)}: not what the sources give; run build.py" + " --ptxas" * args.ptxas)
        return
    for name in differ:
        if name in stale:
            (HERE / name).unlink()
        else:
            (HERE / name).write_text(files[name], encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
