"""A thousand broken files: each is read, or refused in one line; nothing else happens, and soon."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashstate.traces.mooncake_writer import write_mooncake
from flashstate.traces.parquet_writer import write_parquet
from flashstate.traces.read import read_sessions
from flashstate.traces.session import TraceError
from flashstate.traces.stats.collect import Collector
from flashstate.traces.weka import read_weka
from tests.traces.made import SMALL, make_session

FILES = 200
"""Of each of the five kinds below."""

ODD_VALUES: tuple[Any, ...] = (
    None, True, "", "x", "a\nb", "\ud800", [], {}, [[]], [None], ["x"], {"requests": []}, -1, 0, 1, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), -float("inf"), 2**31, 2**63, 10**30, [2**63], [-1], list(range(300)),
)  # fmt: skip


def flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 20)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def drop_part(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content))
    return content[:begin] + content[begin + chance.randint(1, 200) :]


def repeat_part(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content))
    return content[:begin] + content[begin : begin + chance.randint(1, 200)] * 2 + content[begin:]


def recode(content: bytes, chance: random.Random) -> bytes:
    encoding = chance.choice(["utf-16", "utf-16-be", "utf-32", "utf-8-sig", "utf-7"])
    return content.decode("utf-8", "replace").encode(encoding)


def nest(content: bytes, chance: random.Random) -> bytes:
    depth = chance.choice([10, 1000, 100_000])
    return b"".join([b"[" * depth, content, b"]" * depth])


def replace_all(content: bytes, chance: random.Random) -> bytes:
    return chance.choice(
        [b"", b"\n\n", b"\x00" * 1000, chance.randbytes(2000), b"\x1f\x8b", b"{}", b"PAR1", b"null\n"]
    )


BYTES = (flip, cut, drop_part, repeat_part, recode, nest, replace_all)


def mutate(value: Any, chance: random.Random) -> Any:
    """Drops, doubles or changes something somewhere in a document."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(list(value))
        if chance.random() < 0.3:
            return {key: item for key, item in value.items() if key != name}
        return value | {name: mutate(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        place = chance.randrange(len(value))
        changed = [[], [value[place]] * 2, [mutate(value[place], chance)]][chance.choice([0, 1, 2, 2])]
        return [*value[:place], *changed, *value[place + 1 :]]
    return chance.choice(ODD_VALUES)


def mutate_lines(content: bytes, chance: random.Random) -> bytes:
    lines = [json.loads(line) for line in content.splitlines()]
    place = chance.randrange(len(lines))
    lines[place] = mutate(lines[place], chance)
    return "\n".join(map(json.dumps, lines)).encode()


def mutate_document(content: bytes, chance: random.Random) -> bytes:
    return json.dumps(mutate(json.loads(content), chance)).encode()


def break_file(path: Path, chance: random.Random, change: Callable[[bytes, random.Random], bytes]) -> None:
    """Half of the time in structure, else in its bytes; sometimes both."""
    content = path.read_bytes()
    if chance.random() < 0.6:
        content = change(content, chance)
    if chance.random() < 0.5:
        content = chance.choice(BYTES)(content or b" ", chance)
    if path.suffix == ".gz":
        content = gzip.compress(content)
        content = chance.choice(BYTES)(content, chance) if chance.random() < 0.5 else content
    path.write_bytes(content)
    if chance.random() < 0.02:
        path.unlink()
        path.mkdir()


def break_table(path: Path, chance: random.Random) -> None:
    """Cells, columns, rows or bytes."""
    table = pq.read_table(path)
    rows, how = table.to_pylist(), chance.random()
    if how < 0.4:
        path.write_bytes(chance.choice(BYTES)(path.read_bytes(), chance))
        return
    if how < 0.8:
        row, name = chance.choice(rows), chance.choice(table.column_names)
        row[name] = chance.choice([*ODD_VALUES, *(other[name] for other in rows)])
    elif how < 0.9:
        rows = [row for row in rows if chance.random() < 0.7] * chance.randint(1, 2)
    else:
        chance.shuffle(rows)
    try:
        pq.write_table(pa.Table.from_pylist(rows, table.schema if how < 0.6 else None), path)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        pq.write_table(table.drop_columns([chance.choice(table.column_names)]), path)


def outcome(path: Path) -> str:
    """How reading ends; broken records can then be left out."""
    try:
        Collector().add_all(read_sessions(path))
    except TraceError as error:
        message = str(error)
    else:
        return "read"
    assert message.isprintable()  # so it is one line
    skipped: list[TraceError] = []
    Collector().add_all(read_sessions(path, skipped.append))
    assert str(skipped[0]) == message
    return "refused"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small valid file of every kind."""
    folder = tmp_path_factory.mktemp("whole")
    session = read_weka(SMALL)
    document = json.loads(SMALL.read_text())
    shutil.copy(SMALL, folder / "weka.json")
    (folder / "weka.jsonl").write_text("".join(f"{json.dumps(document)}\n" for _ in range(3)))
    write_mooncake([session, make_session()], folder / "mooncake.jsonl")
    shutil.copy(folder / "mooncake.jsonl", folder / "packed.jsonl.gz")  # packed once it is broken
    write_parquet([session, make_session("a"), make_session("b")], folder / "tables")
    return folder


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("weka.json", mutate_document),
        ("weka.jsonl", mutate_lines),
        ("mooncake.jsonl", mutate_lines),
        ("packed.jsonl.gz", mutate_lines),
    ],
)
def test_broken_json(
    tmp_path: Path, whole: Path, name: str, change: Callable[[bytes, random.Random], bytes]
) -> None:
    seen: list[str] = []
    for seed in range(FILES):
        path = tmp_path / f"{seed}-{name}"
        shutil.copy(whole / name, path)
        break_file(path, random.Random(f"{name} {seed}"), change)
        seen.append(outcome(path))
    assert 0.3 * FILES < seen.count("refused") < FILES


@pytest.mark.timeout(60)
def test_broken_tables(tmp_path: Path, whole: Path) -> None:
    seen: list[str] = []
    for seed in range(FILES):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        shutil.copytree(whole / "tables", folder)
        break_table(folder / f"{chance.choice(['requests', 'requests', 'traces', 'agents'])}.parquet", chance)
        seen.append(outcome(folder))
    assert 0.3 * FILES < seen.count("refused") < FILES
