"""The comparison as one HTML file that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from flashstate.files import write_text
from flashstate.report.figures import ROWS, headline
from flashstate.report.plot import Point, line_plot, linear_axis, log_axis
from flashstate.report.results import ENGINES, Results


@dataclass(frozen=True)
class Curves:
    """What is drawn of one engine. `recomputed`: requests answered, tokens recomputed so far.

    `first_token`: seconds, share of the requests whose first token came by then.
    """

    recomputed: Sequence[Point]
    first_token: Sequence[Point]


def write_html(
    path: Path, results: Results, captions: Mapping[str, str], curves: Mapping[str, Curves]
) -> None:
    """Writes the report, whole or not at all: each engine has its `captions`, how it is set; some have `curves`."""
    page = environment().get_template("report.html.j2")
    names = [name for name in ENGINES if name in results.engines]
    text = page.render(
        results=results,
        names=names,
        captions=captions,
        rows=[(row.label, row.hint, [row.show(results.engines[name]) for name in names]) for row in ROWS],
        headline=headline(results),
        drawn=list(curves),
        recomputed=Markup(_recomputed(curves)),
        first_token=Markup(_first_token(curves)),
        facts=_facts(results),
    )
    write_text(path, text)


def environment() -> Environment:
    """Where templates are found, and how they are filled in."""
    return Environment(
        loader=PackageLoader("flashstate.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _recomputed(curves: Mapping[str, Curves]) -> str:
    lines = {name: curve.recomputed for name, curve in curves.items()}
    points = [point for line in lines.values() for point in line]
    x = linear_axis("requests answered", [x for x, _ in points], "{:g}".format)
    y = linear_axis("", [y for _, y in points], _thousands)
    return line_plot("Recomputed tokens by requests answered, by engine", x, y, lines)


def _first_token(curves: Mapping[str, Curves]) -> str:
    lines = {name: curve.first_token for name, curve in curves.items()}
    x = log_axis("seconds to the first token", [x for line in lines.values() for x, _ in line], "{:g}".format)
    y = linear_axis("", [1.0], "{:.0%}".format)
    return line_plot("Share of requests by time to first token, by engine", x, y, lines)


def _thousands(tokens: float) -> str:
    return f"{tokens / 1000:g}K" if tokens < 1e6 else f"{tokens / 1e6:g}M"


def _facts(results: Results) -> list[tuple[str, str]]:
    """How it was run, line by line."""
    groups = {"Machine": results.machine, "Versions": results.versions, "Model": results.model}
    groups |= {"Cache": results.cache, "Workload": results.workload}
    return [(name, _line(group)) for name, group in groups.items()]


def _line(group: Mapping[str, object]) -> str:
    shown = {
        key: value for key, value in group.items() if not isinstance(value, Mapping) and value is not None
    }
    return ", ".join(f"{key.replace('_', ' ')}: {_value(value)}" for key, value in shown.items())


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return str(value)
