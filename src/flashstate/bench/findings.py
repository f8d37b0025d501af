"""The comparison as plain values, for other tools."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from flashstate.bench.compare import HIT_RATE, OUTPUT, PROMPT, TTFT_P90, Comparison
from flashstate.bench.options import Options

_FIGURES: Final = (
    PROMPT, OUTPUT, HIT_RATE, "ideal_hit_rate", "ttft_s.p50", TTFT_P90, "latency_s.p50", "latency_s.p90", "busy",
    "prefill",
)  # fmt: skip
_COMPARED: Final = (PROMPT, OUTPUT, TTFT_P90, "latency_s.p50")


def findings(found: Comparison, options: Options) -> dict[str, Any]:
    """Medians and ranges by engine and load; ratios to stock's settings; stock's best; where each engine's knee is."""
    stock = [engine.name for engine in options.engines if engine.is_stock]
    others = [engine.name for engine in options.engines if not engine.is_stock]
    return {
        "figures": {
            engine.name: {
                sessions: {
                    figure: asdict(spread)
                    for figure in _FIGURES
                    if (spread := found.spread(engine.name, sessions, figure)) is not None
                }
                for sessions in options.loads
            }
            for engine in options.engines
        },
        "ratios": {
            f"{ours} / {base}": {
                sessions: {
                    figure: asdict(ratio) | {"significant": ratio.is_significant}
                    for figure in _COMPARED
                    if (ratio := found.ratio(ours, base, sessions, figure)) is not None
                }
                for sessions in options.loads
            }
            for ours in others
            for base in stock
        },
        "stock_best": {sessions: found.best(stock, sessions) for sessions in options.loads},
        "knees": {engine.name: found.knee(engine.name, options.loads) for engine in options.engines},
    }
