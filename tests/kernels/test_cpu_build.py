"""Compiling at first use: the cache, races, and what is said where it fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flashstate.kernels.base import Recurrence
from flashstate.kernels.cpu import CompileError, chunk_forward
from flashstate.kernels.cpu.build import compiled_library
from flashstate.kernels.cpu.library import load
from tests.kernels.make import make_inputs


def make_compiler(folder: Path, body: str) -> Path:
    """A program in place of a compiler that tells its version and else runs `body`."""
    path = folder / "my-c++"
    path.write_text(f'#!/bin/sh\ncase "$*" in *--version) echo my-c++ 1.0; exit 0;; esac\n{body}\n')
    path.chmod(0o755)
    return path


def test_two_builds_at_once_leave_one_good_library(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        built = list(pool.map(lambda _: compiled_library(folder=tmp_path), range(2)))
    assert built[0] == built[1]
    assert list(tmp_path.iterdir()) == [built[0]]
    chunk_forward(make_inputs(Recurrence.KDA, lengths=(3,)), load(built[0]))


def test_is_compiled_once_for_each_set_of_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, out = tmp_path / "log", tmp_path / "cache"
    compiler = make_compiler(tmp_path, f'echo "$@" >> {log}; for last; do :; done; : > "$last"')
    monkeypatch.setenv("CXX", f"{compiler} --given")
    first = compiled_library(folder=out)
    assert compiled_library(folder=out) == first
    assert len(log.read_text().splitlines()) == 1
    assert "--given" in log.read_text()
    assert compiled_library(("-march=other",), out) != first


def test_the_cache_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(make_compiler(tmp_path, 'for last; do :; done; : > "$last"')))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert compiled_library().parent == tmp_path / "home" / "flashstate" / "kernels"


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        CompileError, match=r"no C\+\+ compiler found .* install g\+\+ or clang\+\+, or set CXX"
    ):
        compiled_library(folder=tmp_path)
    monkeypatch.setenv("CXX", "nowhere++")
    with pytest.raises(CompileError, match=r"CXX names nowhere\+\+"):
        compiled_library(folder=tmp_path)


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = make_compiler(tmp_path, "echo 'note: hm' >&2; echo 'error: too old' >&2; exit 3")
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(CompileError, match=r"my-c\+\+ exited with 3 \(error: too old\): set CXX") as raised:
        compiled_library(folder=tmp_path / "cache")
    assert "\n" not in str(raised.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompileError, match=r"cannot write to the cache folder .*: set XDG_CACHE_HOME"):
        compiled_library(folder=tmp_path / "file" / "cache")


def test_a_broken_library(tmp_path: Path) -> None:
    library = tmp_path / "recurrence.so"
    library.write_text("no library")
    with pytest.raises(CompileError, match=r"cannot load .*recurrence.so .*: delete it"):
        load(library)
