"""Compiles the C++ of this package at first use into a per-user cache folder.

Plain C ABI and no torch headers: it takes about two seconds, once. The file's name is a hash of the source, the flags,
the compiler's version and the processor's features, so that a home shared by unlike machines holds one file for each.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = ("lanes.h", "recurrence.cpp")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-O3",
    "-std=c++17",
    "-shared",
    "-fPIC",
    # Bits must not depend on where a compiler likes to fuse: the source fuses by name.
    "-ffp-contract=off",
    # errno and the floating-point exception flags are of no use here, and keep loops from being vectorised well.
    "-fno-math-errno",
    "-fno-trapping-math",
)
_FOLDER = Path(__file__).parent


class CompileError(RuntimeError):
    """There is no C++ compiler, or it failed. One line: what ran, how it ended, the way out."""


def native_flags() -> tuple[str, ...]:
    """The flags that compile for this very processor. Compilers shun its widest vectors unless told."""
    if platform.machine() in ("x86_64", "AMD64"):
        return ("-march=native", "-mprefer-vector-width=512")
    return ("-mcpu=native",)


def compiled_library(architecture: tuple[str, ...] | None = None, folder: Path | None = None) -> Path:
    """The compiled library, built now if it is not in `folder` yet. Safe where processes race: the last rename wins.

    architecture: the compiler's flags for a processor, such as -march=x86-64-v3; this one's if None.
    folder: the cache; $XDG_CACHE_HOME/flashstate/kernels (~/.cache if unset) if None.
    Raises CompileError.
    """
    compiler = find_compiler()
    flags = (*FLAGS, *(architecture or native_flags()))
    folder = folder or _cache_folder()
    library = folder / f"recurrence-{_key(compiler, flags)}.so"
    if library.exists():
        return library
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch = tempfile.TemporaryDirectory(dir=folder, prefix="build-")
    except OSError as error:
        raise CompileError(
            f"cannot write to the cache folder {folder} ({error.strerror}): set XDG_CACHE_HOME to one you can write to"
        ) from error
    with scratch as name:
        built = Path(name) / library.name
        _run([*compiler, *flags, str(_FOLDER / "recurrence.cpp"), "-o", str(built)])
        built.replace(library)
    return library


def find_compiler() -> list[str]:
    """The compiler's command: $CXX, which may hold arguments, or the first of COMPILERS on the PATH."""
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        if shutil.which(named[0]) is None:
            raise CompileError(f"CXX names {named[0]}, which is not on the PATH: set CXX to a C++17 compiler")
        return named
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    raise CompileError(
        f"no C++ compiler found (CXX is unset; {', '.join(COMPILERS)} are not on the PATH): "
        "install g++ or clang++, or set CXX"
    )


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        said = next((line for line in lines if "error" in line), lines[0])
        raise CompileError(
            f"{command[0]} exited with {done.returncode} ({said.strip()}): set CXX to a C++17 compiler; "
            f"it ran: {shlex.join(command)}"
        )
    return done.stdout


def _key(compiler: list[str], flags: tuple[str, ...]) -> str:
    parts = [*compiler, *flags, _run([*compiler, "--version"]), *_processor()]
    parts += [(_FOLDER / name).read_text() for name in SOURCES]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _processor() -> list[str]:
    """What a native build depends on: the first core's model and features."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return [platform.machine(), platform.processor()]
    kept = ("vendor_id", "model name", "flags", "Features", "CPU implementer", "CPU part")
    first = info.read_text().split("\n\n")[0].splitlines()
    return [line for line in first if line.startswith(kept)]


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "flashstate" / "kernels"
