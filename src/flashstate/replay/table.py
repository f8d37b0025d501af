"""The summary of a run, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def show(found: Mapping[str, Any], console: Console) -> None:
    """Prints what `totals.summary` gave."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, value in _rows(found):
        table.add_row(name, value)
    console.print(table)
    for kind, count in found["errors"].items():
        console.print(f"failed: {count:,} with {escape(kind)}", highlight=False)
    if found["verdict"] == "valid":
        console.print("verdict: [green]valid[/]", highlight=False)
    for reason in found["reasons"]:
        console.print(f"verdict: [red]invalid[/]: {escape(reason)}", highlight=False, soft_wrap=True)


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    requests = found["requests"]
    return [
        ("measured", f"{found['measured_s']:,.1f} s"),
        ("requests answered / failed", f"{requests['answered']:,} / {requests['failed']:,}"),
        ("requests outside the window / failed", f"{requests['outside']:,} / {requests['failed_outside']:,}"),
        ("prompt tokens a second", _number(found["prompt_tokens_per_s"])),
        ("output tokens a second", _number(found["output_tokens_per_s"])),
        ("hit rate, as the server says", _percent(found["hit_rate"])),
        ("hit rate of a perfect cache", _percent(found["ideal_hit_rate"])),
        ("TTFT p50 / p90", _seconds(found["ttft_s"])),
        ("latency p50 / p90", _seconds(found["latency_s"])),
        ("this client itself was late, p90", _late(found["client_late_s"])),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _late(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"


def _seconds(value: Mapping[str, float] | None) -> str:
    return "-" if value is None else f"{value['p50']:.3f} / {value['p90']:.3f} s"
