"""Whether a run's figures may be used: every reason why not, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flashstate.replay.totals import Totals

_SLACK: Final = 0.995
"""A window is as long as asked if it is within half a percent: clocks and last requests round."""


def reasons(totals: Totals, parameters: Mapping[str, Any]) -> list[str]:
    """One line each; none if the run is valid."""
    found = []
    asked_s, most = parameters["measure_s"], float(parameters["max_failed_percent"])
    stopped = totals.parts[-1].stopped if totals.parts else None
    why = stopped or ("the work was over" if totals.over else None)
    short = None
    if asked_s is None and not totals.over:
        short = "not all the work was done"
    elif asked_s is not None and totals.measured_s < asked_s * _SLACK:
        short = f"{totals.measured_s:.1f} of {asked_s:g} s were measured"
    if short is not None:
        found.append(short + (f": {why}" if why else ""))
    if not totals.answered:
        found.append("no request was answered in the measured time")
    if totals.measured and 100 * totals.failed / totals.measured > most:
        share = 100 * totals.failed / totals.measured
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in totals.errors.most_common())
        found.append(
            f"{share:.1f}% of the measured requests failed, {most:g}% may: {kinds}"
            f" (such as {totals.examples[totals.errors.most_common(1)[0][0]]})"
        )
    restarts = sum(part.restarts for part in totals.parts)
    if restarts:
        found.append(f"a server restarted {restarts} time{'s' if restarts > 1 else ''} during the run")
    return found
