"""Compiles the kernels for a GPU that need not be there, and says what each would use of it.

    python -m flashstate.kernels.triton.build

Triton's wheel carries ptxas and cuobjdump, so a machine without a GPU can tell that each kernel builds and that it
fits the registers.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from flashstate.kernels.base import Recurrence
from flashstate.kernels.triton.arithmetic import INTERPRETED
from flashstate.kernels.triton.forward import FP_FUSION, kernel_kind
from flashstate.kernels.triton.prepare import prepare_kernel
from flashstate.kernels.triton.scan import scan_kernel
from flashstate.kernels.triton.tiles import ChunkTiles, default_tiles

ARCHITECTURES = (90, 100)
_KINDS = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}
_OF_INT32 = {"cu_seqlens", "export_offsets"}
_OF_FLOAT32 = {
    "log_decay", "beta", "row_read", "row_write", "tile_decay", "initial_state", "final_state", "checkpoint",
}  # fmt: skip
_SCALARS = {"scale": "fp32", "sequences": "i32", "tile_slots": "i32"}


@dataclass(frozen=True)
class Layer:
    """The shape of one recurrent layer: heads and channels a head."""

    recurrence: Recurrence
    heads: int
    key_heads: int
    key_dim: int
    value_dim: int


# Kimi Linear, Qwen3-Next and a Mamba-2 hybrid of 8 groups.
LAYERS = (
    Layer(Recurrence.KDA, heads=32, key_heads=32, key_dim=128, value_dim=128),
    Layer(Recurrence.GDN, heads=32, key_heads=16, key_dim=128, value_dim=128),
    Layer(Recurrence.MAMBA2, heads=128, key_heads=8, key_dim=128, value_dim=64),
)


@dataclass(frozen=True)
class KernelUse:
    """What one compiled kernel takes. Registers a thread; stack bytes a thread; shared memory in bytes a program.

    local_accesses: instructions that read or write the stack, by spills above all. cubin: its size in bytes.
    """

    kernel: str
    recurrence: Recurrence
    kind: torch.dtype
    architecture: int
    registers: int
    stack_bytes: int
    local_accesses: int
    shared_bytes: int
    cubin_bytes: int


def compile_layer(
    layer: Layer, kind: torch.dtype, architecture: int, tiles: ChunkTiles | None = None
) -> tuple[KernelUse, KernelUse]:
    """Both kernels of one layer, as `chunk_forward` would launch them; tiles: None for the defaults.

    architecture: 90 for sm_90. Raises RuntimeError under Triton's interpreter, which compiles nothing.
    """
    if INTERPRETED:
        raise RuntimeError("TRITON_INTERPRET is set: must be unset before Triton is imported, to compile")
    tiles = tiles or default_tiles(layer.recurrence, kind)
    common = {
        "HEADS": layer.heads,
        "KEY_HEADS": layer.key_heads,
        "KEY_DIM": layer.key_dim,
        "VALUE_DIM": layer.value_dim,
        **kernel_kind(layer.recurrence, tiles, layer.key_dim),
    }
    prepare = common | {"LEVELS": tiles.tokens.bit_length() - 1}
    prepare_options = {"num_warps": tiles.prepare_warps}
    scan = common | {"VALUES": tiles.values}
    scan_options = {"num_warps": tiles.scan_warps, "num_stages": tiles.scan_stages}
    use = KernelUse("prepare", layer.recurrence, kind, architecture, 0, 0, 0, 0, 0)
    return (
        _compile(prepare_kernel, prepare, prepare_options, use),
        _compile(scan_kernel, scan, scan_options, replace(use, kernel="scan")),
    )


def _compile(kernel: Any, constants: dict[str, object], options: dict[str, int], use: KernelUse) -> KernelUse:
    by_channel = use.recurrence is Recurrence.KDA
    absent = {"row_read", "row_write"} if by_channel else {"q_read", "k_write"}
    if use.recurrence is Recurrence.MAMBA2:
        absent |= {"solved_k", "solved_v"}
    constants = constants | dict.fromkeys(absent)
    signature = {name: _type_of(name, constants, use.kind) for name in kernel.arg_names}
    attributes = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*")
    }
    source = ASTSource(kernel, signature, constants, attributes)
    target = GPUTarget("cuda", use.architecture, 32)
    built = triton.compile(source, target=target, options=options | {"enable_fp_fusion": FP_FUSION})
    cubin = built.asm["cubin"]
    registers, stack, local = _resources(cubin)
    return replace(
        use,
        registers=registers,
        stack_bytes=stack,
        local_accesses=local,
        shared_bytes=built.metadata.shared,
        cubin_bytes=len(cubin),
    )


def _type_of(name: str, constants: dict[str, object], kind: torch.dtype) -> str:
    if name in constants:
        return "constexpr"
    if name in _SCALARS:
        return _SCALARS[name]
    if name in _OF_INT32:
        return "*i32"
    return "*fp32" if name in _OF_FLOAT32 else _KINDS[kind]


def _resources(cubin: bytes) -> tuple[int, int, int]:
    """Registers and stack bytes a thread, and the number of instructions that touch the stack."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = _cuobjdump("-res-usage", path)
        found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
        if found is None:
            raise RuntimeError(f"cuobjdump names no registers: {usage.strip()[-200:]}")
        registers, stack = int(found[1]), int(found[2])
        # Without a stack nothing can touch it, and disassembling takes longest.
        code = _cuobjdump("-sass", path) if stack else ""
    return registers, stack, len(re.findall(r"\b(?:STL|LDL)\b", code))


def _cuobjdump(what: str, path: Path) -> str:
    command = [knobs.nvidia.cuobjdump.path, what, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def uses(
    kinds: Sequence[torch.dtype] = (torch.bfloat16, torch.float32),
    architectures: Sequence[int] = ARCHITECTURES,
) -> Iterator[KernelUse]:
    """Every kernel of every layer of LAYERS, at its default tiles, compiled one after another."""
    for architecture in architectures:
        for kind in kinds:
            for layer in LAYERS:
                yield from compile_layer(layer, kind, architecture)


def main() -> None:
    """Prints the table, a line as each kernel is ready."""
    line = "{:<7} {:<8} {:<9} {:<6} {:>9} {:>6} {:>14} {:>7} {:>7}".format
    print(line("layer", "kernel", "type", "gpu", "registers", "stack", "stack accesses", "shared", "cubin"))  # noqa: T201
    for use in uses():
        kind = str(use.kind).removeprefix("torch.")
        gpu = f"sm_{use.architecture}"
        name = use.recurrence.value
        numbers = (use.registers, use.stack_bytes, use.local_accesses, use.shared_bytes, use.cubin_bytes)
        print(line(name, use.kernel, kind, gpu, *numbers), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
