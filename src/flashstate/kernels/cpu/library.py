"""The compiled library through ctypes: its one struct, its one function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

from flashstate.kernels.cpu.build import CompileError, compiled_library

INPUTS = ("q", "k", "v", "log_decay", "beta", "output", "pool", "cu_seqlens", "slots", "has_initial")
EXPORT = ("export_offsets", "export_slots")
SIZES = ("slot_stride", "pool_slots", "tokens")
DIMENSIONS = ("sequences", "heads", "key_heads", "values", "keys")
CHOICES = ("family", "bfloat16", "threads", "fault_sequence")


class Call(ctypes.Structure):
    """FlashstateCall of recurrence.cpp, field for field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in (*INPUTS, *EXPORT, "parallel")),
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_int32) for name in (*DIMENSIONS, *CHOICES)),
        ("scale", ctypes.c_float),
    ]


ChunkForward = Callable[["ctypes._Pointer[Call] | object"], int]


@cache
def native_chunk_forward() -> ChunkForward:
    """The function for this processor, compiled if need be. Raises CompileError."""
    return load(compiled_library())


def load(library: Path) -> ChunkForward:
    """flashstate_chunk_forward of a compiled library: takes a Call by reference, returns a fault's number or 0."""
    try:
        function = ctypes.CDLL(str(library)).flashstate_chunk_forward
    except (OSError, AttributeError) as error:
        raise CompileError(f"cannot load {library} ({error}): delete it to have it compiled again") from error
    function.argtypes = [ctypes.POINTER(Call)]
    function.restype = ctypes.c_int32
    return function


@cache
def parallel_region() -> int | None:
    """The address of GOMP_parallel in the OpenMP that torch runs on, or None: then one thread does all.

    Through it the kernel runs on torch's own threads. Linked against OpenMP, the kernel could load a second runtime,
    whose threads would spin beside torch's: torch's wheels bundle theirs.
    """
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except AttributeError:
        return None
