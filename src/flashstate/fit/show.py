"""A fit on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from flashstate.fit.judge import Fit

_MEANING = {
    "d": ("D", "s/token"),
    "e": ("E", "s/(1,000 tokens)^2"),
    "request_s": ("a request", "s"),
    "resume_s": ("a warm start, in addition", "s"),
    "prompt_token_s": ("a prompt token, cached or not", "s"),
}


def show(found: Fit, out: Path, console: Console) -> None:
    """Prints the coefficients, the held-out lengths and what to do with the file."""
    table = Table(
        title="Prefill time T(a, b) = D (b - a) + E (b^2 - a^2), and overhead", title_justify="left"
    )
    for heading in ("", "fitted", "95% interval", "unit"):
        table.add_column(heading, justify="left" if heading in ("", "unit") else "right")
    for name, (title, unit) in _MEANING.items():
        low, high = found.intervals[name]
        table.add_row(title, f"{getattr(found.time, name):.3e}", f"{low:.3e} .. {high:.3e}", unit)
    console.print(table)
    held_out = Table(title="Held out: not fitted, predicted", title_justify="left")
    for heading in ("cached tokens", "prompt tokens", "measured, ms", "predicted, ms", "error"):
        held_out.add_column(heading, justify="right")
    for c in (c for c in found.comparisons if c.held_out):
        times = (f"{seconds * 1000:,.1f}" for seconds in (c.measured_s, c.predicted_s))
        held_out.add_row(f"{c.start:,}", f"{c.stop:,}", *times, f"{c.relative_error:+.1%}")
    console.print(held_out)
    console.print(f"median error: {found.median_error(held_out=True):.1%} held out", highlight=False)
    if not any(c.start for c in found.comparisons):
        console.print(
            "No prompt started warm: the server caches nothing, or does not say so "
            "(vLLM does with --enable-prompt-tokens-details)."
        )
    console.print(f"{out}: for flashstate serve and flashstate simulate --prefill-cost", soft_wrap=True)
