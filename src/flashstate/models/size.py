"""What `flashstate size` says of a model, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flashstate.models.geometry import Blocks, Geometry


@dataclass(frozen=True, slots=True)
class Size:
    """A model's sizes: all of it, and on one GPU, where its blocks are. `kv_type`: auto (16-bit) or fp8."""

    name: str
    kv_type: str
    whole: Geometry
    gpu: Geometry
    blocks: Blocks

    def as_json(self) -> dict[str, Any]:
        """Plain values; sizes in bytes."""
        return {
            "model": self.name,
            "model_type": self.whole.model_type,
            "recurrent": {"kind": self.whole.recurrent_kind, "layers": self.whole.recurrent_layers},
            "attention": {"kind": self.whole.attention_kind, "layers": self.whole.attention_layers},
            "kv_cache_dtype": self.kv_type,
            "whole_model": _sizes(self.whole),
            "gpu": {"tensor_parallel": self.gpu.tensor_parallel, **_sizes(self.gpu)},
            "blocks": {
                "block_tokens": self.blocks.tokens,
                "smallest_block_tokens": self.gpu.block_tokens,
                "block_bytes": self.blocks.block_bytes,
                "checkpoint_blocks": self.blocks.checkpoint_blocks,
                "checkpoint_tokens": self.blocks.checkpoint_tokens,
            },
        }

    def show(self, console: Console) -> None:
        """Prints a table; a column for the GPU where it is not all of the model."""
        one, tp = self.whole, self.gpu.tensor_parallel
        console.print(
            f"[bold]{escape(self.name)}[/] ({one.model_type}): {one.recurrent_layers} {one.recurrent_kind} and "
            f"{one.attention_layers} {one.attention_kind} layers",
            highlight=False,
        )
        table = Table("", box=None, pad_edge=False)
        table.add_column("whole model", justify="right", no_wrap=True)
        columns = [self.whole]
        if tp > 1:
            table.add_column(f"a GPU at TP {tp}", justify="right", no_wrap=True)
            columns.append(self.gpu)
        for title, value in self._rows():
            table.add_row(title, *map(value, columns))
        console.print(table, highlight=False)
        console.print(self._blocks_line(), highlight=False)

    def _rows(self) -> list[tuple[str, Callable[[Geometry], str]]]:
        rows: list[tuple[str, Callable[[Geometry], str]]] = [
            ("recurrent state a layer (float32)", lambda found: f"{found.recurrent_bytes:,} B"),
            ("convolution inputs a layer (16-bit)", lambda found: f"{found.convolution_bytes:,} B"),
            (
                "[bold]checkpoint, all layers[/]",
                lambda found: f"[bold]{_megabytes(found.checkpoint_bytes)}[/]",
            ),
        ]
        if self.whole.auxiliary_bytes:
            rows.append(("auxiliary state, all layers", lambda found: f"{found.auxiliary_bytes:,} B"))
        kv = "8-bit" if self.kv_type == "fp8" else "16-bit"
        return [
            *rows,
            (f"KV a token, all layers ({kv})", lambda found: f"{found.kv_bytes_per_token:,} B"),
            ("a checkpoint is as many bytes as", lambda found: f"{found.checkpoint_worth_tokens:,} tokens"),
        ]

    def _blocks_line(self) -> str:
        blocks = self.blocks
        chosen = " (the fewest vLLM would choose)" if blocks.tokens == self.gpu.block_tokens else ""
        count = "1 block" if blocks.checkpoint_blocks == 1 else f"{blocks.checkpoint_blocks} blocks"
        with_auxiliary = ", one of them for auxiliary state" if self.gpu.auxiliary_bytes else ""
        return (
            f"Blocks of {blocks.tokens:,} tokens{chosen}, {_megabytes(blocks.block_bytes)} each: a checkpoint takes "
            f"[bold]{count}[/]{with_auxiliary}, the room of [bold]{blocks.checkpoint_tokens:,}[/] tokens of KV."
        )


def _sizes(found: Geometry) -> dict[str, int]:
    return {
        "recurrent_bytes_per_layer": found.recurrent_bytes,
        "convolution_bytes_per_layer": found.convolution_bytes,
        "checkpoint_bytes": found.checkpoint_bytes,
        "auxiliary_bytes": found.auxiliary_bytes,
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "checkpoint_worth_tokens": found.checkpoint_worth_tokens,
    }


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size:,} B"
