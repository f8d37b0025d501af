"""The page as a browser shows it, with the network off."""

from __future__ import annotations

import asyncio
import json
import re
import struct
import time
from pathlib import Path

import pytest

from flashstate.report.html import write_html
from tests.report.browser import CHROMIUM, chromium
from tests.report.records import make_records, write_lines
from tests.report.test_page import make_page
from tests.report.test_report import CAPTIONS, CURVES, RESULTS
from tests.report.test_simulation import SWEEP, make_document

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="NO BROWSER TEST: Chromium is not installed (Debian: apt-get install chromium)"
)

BACKGROUND = {False: "rgb(251, 251, 249)", True: "rgb(19, 20, 22)"}
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FIGURES = """[...document.querySelectorAll("#figures tbody tr")].map((row) => [
    row.querySelector("th").firstChild.textContent, ...[...row.querySelectorAll("td")].map((cell) => cell.textContent)
])"""
DRAWN = """[...document.querySelectorAll('svg[role="img"]')].filter(
    (svg) => svg.getBoundingClientRect().height > 60
).length"""


def make_report(folder: Path) -> Path:
    """Two engines, one at two loads, and a simulation."""
    (folder / "sim.json").write_text(json.dumps(make_document(*SWEEP)))
    more = write_lines(folder / "c.jsonl", make_records(4, 10))
    make_page(folder, f"stock={more}", folder / "sim.json")
    return folder / "r.html"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_in_a_browser(dark: bool, width: int, tmp_path: Path) -> None:
    asyncio.run(look(make_report(tmp_path), dark, width, tmp_path))


async def look(page: Path, dark: bool, width: int, folder: Path) -> None:
    async with chromium(folder / "profile") as tab:
        await tab.open(page, dark=dark, width=width, downloads=folder)
        figures = {name: values for name, *values in await tab.run(FIGURES)}
        assert figures["Hit rate"] == ["60.0 %", "80.0 %", "60.0 %"]
        assert figures["Requests"] == ["20", "20", "40"]
        assert figures["Sessions"] == ["2", "2", "4"]
        assert await tab.run("getComputedStyle(document.body).backgroundColor") == BACKGROUND[dark]
        assert await tab.run("innerWidth") == width
        assert await tab.run(SIDEWAYS) == 0
        assert await tab.run(DRAWN) == len(re.findall('<svg[^>]*role="img"', page.read_text()))
        await tab.run("document.querySelector('details').open = true")
        assert await tab.run(SIDEWAYS) == 0
        assert tab.asked_for == [page.as_uri()]
        assert tab.complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_the_demos_page_on_a_phone(dark: bool, tmp_path: Path) -> None:
    async def look() -> None:
        async with chromium(tmp_path / "profile") as tab:
            await tab.open(page, dark=dark, width=360, downloads=tmp_path)
            assert await tab.run("document.querySelector('td.flashstate').textContent") == "75.0 %"
            assert await tab.run(SIDEWAYS) == 0
            assert await tab.run("document.querySelectorAll('button.png').length") == 2
            assert (tab.asked_for, tab.complaints) == ([page.as_uri()], [])

    page = tmp_path / "report.html"
    write_html(page, RESULTS, CAPTIONS, CURVES)
    asyncio.run(look())


def test_a_box_hides_a_line(tmp_path: Path) -> None:
    async def look() -> None:
        async with chromium(tmp_path / "profile") as tab:
            await tab.open(page, dark=False, width=1280, downloads=tmp_path)
            assert [await tab.run(shown.format(n)) for n in range(3)] == [False, True, True]
            await tab.run("document.querySelector('input.t1').click()")
            assert [await tab.run(shown.format(n)) for n in range(3)] == [False, False, True]

    page = make_report(tmp_path)
    shown = "getComputedStyle(document.querySelector('figure .n{0}')).display !== 'none'"
    asyncio.run(look())


def test_every_plot_saves_itself_as_a_png(tmp_path: Path) -> None:
    async def save() -> int:
        async with chromium(tmp_path / "profile") as tab:
            await tab.open(page, dark=True, width=1280, downloads=folder)
            buttons = await tab.run("document.querySelectorAll('button.png').length")
            for name in (
                "Save as PNG: Hit rate over time, by engine",
                "Save as PNG: Sessions of flashstate over time",
            ):
                await tab.run(f"document.querySelector('button[aria-label=\"{name}\"]').click()")
                await arrives(folder, name)
            assert tab.complaints == []
            assert tab.asked_for[0] == page.as_uri()
            assert not any(url.startswith("http") for url in tab.asked_for)
            return int(buttons)

    folder = tmp_path / "saved"
    folder.mkdir()
    page = make_report(tmp_path)
    assert asyncio.run(save()) == len(re.findall("<figure", page.read_text()))
    hits, lanes = (
        folder / f"{name}.png"
        for name in ("hit-rate-over-time-by-engine", "sessions-of-flashstate-over-time")
    )
    assert png_size(hits)[0] == 2 * 480
    assert png_size(lanes)[0] == 2 * 960
    assert png_size(hits)[1] > 2 * 300  # the plot, and the title and the key above it


async def arrives(folder: Path, name: str) -> None:
    """Waits for the file that the button called `name` makes."""
    file = folder / (
        re.sub("[^a-z0-9]+", "-", name.removeprefix("Save as PNG: ").lower()).strip("-") + ".png"
    )
    deadline = time.monotonic() + 30
    while not (file.exists() and file.stat().st_size):
        assert time.monotonic() < deadline, f"no {file.name} among {[path.name for path in folder.iterdir()]}"
        await asyncio.sleep(0.05)


def png_size(path: Path) -> tuple[int, int]:
    """Width and height from a PNG's first chunk; the file must be whole."""
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    assert content.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", content[16:24])
    return width, height
