"""The Triton kernels on a GPU: their promises bit for bit, then their times: `benchmarks/device.sh`.

Times are medians over rounds in which each variant is run once in turn, so that a clock that drifts hits all alike:
without export, with an export from inside a tile, and the chunk kernel of Flash Linear Attention where it is there
(its package, or vLLM's copy). Prints one table, then one JSON object on a line. Exits 1 if a promise is broken.
    --device cpu --tiny   the same code in Triton's interpreter (set TRITON_INTERPRET=1): its times mean nothing
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from statistics import median
from time import monotonic, perf_counter

import torch
import triton

from benchmarks.kernels_exact import Check, checks, inputs_of, tiny
from benchmarks.kernels_fla import Baseline, find_baseline
from flashstate.kernels.base import Recurrence
from flashstate.kernels.triton import chunk_forward
from flashstate.kernels.triton.build import LAYERS, Layer

BATCHES = ([2048], [8192], [32768], [1024] * 8)
"""Tokens of each sequence of the batches to time."""
WARM_UP = 3
ROUNDS = 30


@dataclass(frozen=True)
class Timing:
    """Median milliseconds a call, of `rounds`. export_ms: one a sequence, from inside a tile. fla_ms: None without."""

    recurrence: str
    lengths: list[int]
    rounds: int
    off_ms: float
    export_ms: float
    fla_ms: float | None
    fla: str


def time_layer(layer: Layer, lengths: list[int], device: torch.device, rounds: int) -> Timing:
    """bfloat16, with initial states."""
    offsets = [length // 2 + 7 for length in lengths]
    on = inputs_of(layer, lengths, torch.bfloat16, device, offsets)
    off = replace(on, export_offsets=None)
    calls: dict[str, Callable[[], object]] = {
        "off": lambda: chunk_forward(off),
        "export": lambda: chunk_forward(on),
    }
    baseline = find_baseline(layer.recurrence) if device.type == "cuda" else "not run on a CPU"
    fla = baseline if isinstance(baseline, str) else baseline.place
    if isinstance(baseline, Baseline):
        call = baseline.prepare(on)
        try:
            call()
            calls["fla"] = call
        except Exception as error:  # their kernel, their requirements: go on without it
            fla = f"{baseline.place} failed: {type(error).__name__}: {error}".splitlines()[0][:200]
    times = _in_turns(calls, device, rounds)
    return Timing(
        layer.recurrence.value, lengths, rounds, times["off"], times["export"], times.get("fla"), fla
    )


def _in_turns(calls: dict[str, Callable[[], object]], device: torch.device, rounds: int) -> dict[str, float]:
    for call in calls.values():
        for _ in range(WARM_UP if device.type == "cuda" else 0):
            call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(_milliseconds(call, device))
    return {name: median(times) for name, times in taken.items()}


def _milliseconds(call: Callable[[], object], device: torch.device) -> float:
    """From first to last kernel on a GPU, launches that the GPU has to wait for included."""
    if device.type != "cuda":
        start = perf_counter()
        call()
        return (perf_counter() - start) * 1e3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def device_name(device: torch.device) -> str:
    """The GPU's name and compute capability, or that there is none."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"{torch.cuda.get_device_name(device)}, sm_{major}{minor}"
    return f"no GPU: {platform.machine()} CPU, Triton's interpreter"


def print_report(name: str, promises: list[Check], timings: list[Timing], left_out: list[str]) -> None:
    print(f"GPU: {name}\n")
    line = "{:<7} {:<9} {:<42} {:>6} {:>7} {:>9}".format
    print(line("layer", "type", "promise", "cases", "broken", "error"))
    for check in promises:
        error = "" if check.error is None else f"{check.error:.1e}"
        print(line(check.recurrence, check.kind, check.promise, check.cases, len(check.failed), error))
    line = "{:<7} {:<14} {:>9} {:>10} {:>9} {:>8} {:>8}  {}".format
    print("\n" + line("layer", "tokens", "off ms", "export ms", "export", "fla ms", "fla/off", "fla is"))
    for timing in timings:
        tokens = f"{len(timing.lengths)} x {timing.lengths[0]}"
        export = f"{100 * (timing.export_ms / timing.off_ms - 1):+.1f}%"
        fla = "-" if timing.fla_ms is None else f"{timing.fla_ms:.3f}"
        ratio = "-" if timing.fla_ms is None else f"{timing.fla_ms / timing.off_ms:.2f}"
        off, on = f"{timing.off_ms:.3f}", f"{timing.export_ms:.3f}"
        print(line(timing.recurrence, tokens, off, on, export, fla, ratio, timing.fla))
    for what in left_out:
        print(f"left out, no time: {what}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="layers small enough for the interpreter")
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="start nothing new after these (default 300)"
    )
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device here: needs one, or --device cpu --tiny with TRITON_INTERPRET=1")
    if options.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        sys.exit("--device cpu: needs TRITON_INTERPRET=1 in the environment")
    device = torch.device(options.device)
    begun = monotonic()
    layers = [tiny(recurrence) for recurrence in Recurrence] if options.tiny else LAYERS
    kinds = (torch.bfloat16,) if options.tiny else (torch.bfloat16, torch.float32)
    offsets = [3, 18] if options.tiny else [*range(1, 66), 127, 128, 200, 1000]
    batches = ([20],) if options.tiny else BATCHES

    promises: list[Check] = []
    timings: list[Timing] = []
    left_out: list[str] = []

    def within_time(what: str) -> bool:
        if monotonic() - begun < options.seconds:
            return True
        left_out.append(what)
        return False

    # The type that serves first, so that what time may cut off is the least needed.
    for kind in kinds[:1]:
        for layer in layers:
            promises += checks(layer, kind, device, offsets)
    for lengths in batches:
        for layer in layers:
            if within_time(f"times of {layer.recurrence.value}, {len(lengths)} x {lengths[0]}"):
                timings.append(time_layer(layer, lengths, device, 1 if options.tiny else ROUNDS))
    for kind in kinds[1:]:
        for layer in layers:
            if within_time(f"promises of {layer.recurrence.value} in {kind}"):
                promises += checks(layer, kind, device, offsets)

    name = device_name(device)
    print_report(name, promises, timings, left_out)
    record = {
        "device": name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "tiny": options.tiny,
        "seconds": round(monotonic() - begun, 1),
        "promises": [asdict(check) for check in promises],
        "timings": [asdict(timing) for timing in timings],
        "left_out": left_out,
    }
    print("\n" + json.dumps(record))
    if any(check.failed for check in promises):
        sys.exit(1)


if __name__ == "__main__":
    main()
