"""Pages of the documentation as programs: their blocks run one after the other, in one namespace and one folder.

Blocks of ``python`` run, and so do hidden blocks (``<!-- run`` ... ``-->``). Lines of ``sh`` are commands of
lakeformat. ``sql`` goes to ``lakeformat.spark.sql``. ``text`` does not run. ``/tmp/`` and ``/data/`` are replaced by
the folder of the test. ``<!-- run: flights -->`` gives the page the rows of a few flights; with ``spark``, also a table
and frames of them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa

__all__ = ["PAGES", "ROOT", "Block", "blocks_of", "flights_of", "needs_engines", "needs_spark", "run_page"]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: The kinds of blocks.
KINDS = {"python", "sh", "sql", "text", "run", "prelude"}
_BLOCK = re.compile(
    r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$|^<!-- run: (?P<prelude>[\w ]+) -->$|^<!-- run\n(?P<hidden>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
SCHEMA = pa.schema(
    [
        ("flight_id", pa.int64()),
        ("month", pa.int32()),
        ("carrier", pa.string()),
        ("distance", pa.int32()),
        ("dep_delay", pa.float64()),
        ("arr", pa.int64()),
        ("sched", pa.int64()),
        ("delay", pa.int64()),
        ("checked", pa.bool_()),
        ("cancelled", pa.bool_()),
        ("status", pa.string()),
        ("x", pa.int64()),
        ("y", pa.int64()),
        ("updated_at", pa.int64()),
    ]
)


class Block(NamedTuple):
    """One block of a page; ``line`` is the line at which its text begins."""

    kind: str
    text: str
    line: int


def blocks_of(page: Path) -> Iterator[Block]:
    """Return the fenced and hidden blocks, in order."""
    content = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(content):
        line = content.count("\n", 0, found.start()) + 2
        if found["prelude"] is not None:
            yield Block("prelude", found["prelude"], line)
        elif found["hidden"] is not None:
            yield Block("run", found["hidden"], line)
        else:
            yield Block(found["kind"], found["text"], line)


def needs_spark(page: Path) -> bool:
    """Tell whether the blocks of a page use a Spark session."""
    return any("spark" in block.text or block.kind == "sql" for block in blocks_of(page) if block.kind != "text")


def needs_engines(page: Path) -> bool:
    """Tell whether the blocks of a page use Ray, dask or daft. ``tests/integrations`` runs such a page."""
    return any("lakeformat.integrations" in block.text for block in blocks_of(page) if block.kind != "text")


def run_page(page: Path, folder: Path, spark: Any = None) -> int:
    """Run all blocks of a page. Return how many ran. Tracebacks show the lines of the page.

    Environment variables that the page sets are taken back.
    """
    with patch.dict(os.environ):
        return _run_blocks(page, folder, spark)


def _run_blocks(page: Path, folder: Path, spark: Any) -> int:
    names: dict[str, Any] = {"__name__": "page"} | ({"spark": spark} if spark is not None else {})
    ran = 0
    for block in blocks_of(page):
        text = re.sub(r"(?<![\w.])/(tmp|data)/", f"{folder}/", block.text)
        if block.kind == "prelude":
            names.update(flights_of(folder, spark if "spark" in text else None))
        elif block.kind in {"python", "run"}:
            exec(compile("\n" * (block.line - 1) + text, str(page), "exec", dont_inherit=True), names)  # noqa: S102
        elif block.kind == "sh":
            _commands(text)
        elif block.kind == "sql":
            _statements(text, spark)
        ran += block.kind != "text"
    return ran


def _commands(text: str) -> None:
    from lakeformat.cli.main import main

    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "lakeformat", f"{line!r} is no command of ours: say text"
            assert main(words[1:]) == 0, line


def _statements(text: str, spark: Any) -> None:
    from lakeformat.spark import sql

    for statement in re.split(r";\s*$", text, flags=re.MULTILINE):
        if statement.strip():
            sql(spark, statement).collect()


def _rows(first: int, last: int, updated_at: int) -> list[dict[str, Any]]:
    return [
        {
            "flight_id": at,
            "month": at % 3 + 1,
            "carrier": ("AA", "UA", "US", "DL")[at % 4],
            "distance": 400 + at * 31 % 2500,
            "dep_delay": float(at % 90),
            "arr": 1000 + at,
            "sched": 990 + at,
            "delay": None,
            "checked": False,
            "cancelled": at % 17 == 0,
            "status": "landed",
            "x": at * 37 % 101,
            "y": at * 53 % 97,
            "updated_at": updated_at,
        }
        for at in range(first, last)
    ]


def flights_of(folder: Path, spark: Any) -> dict[str, Any]:
    old, new = (pa.Table.from_pylist(_rows(*of), SCHEMA) for of in ((0, 300, 1), (280, 320, 2)))
    marked = new.append_column("op", pa.array(["d" if at % 5 == 0 else "u" for at in range(new.num_rows)]))
    if spark is None:
        keys, rows = new.select(["flight_id"]), old.slice(0, 9)
        names = {"schema": SCHEMA, "batches": old.to_batches(100), "keys": keys, "rows": rows}
        return {**names, "changes": new, "marked": marked}
    path = str(folder / "flights")
    frame = spark.createDataFrame(old)
    frame.write.format("lakehouse").options(
        recordkey="flight_id", partitionpath="month", ordering="updated_at", operation="bulk_insert"
    ).mode("append").save(path)
    frames = {"flights": frame, "changes": spark.createDataFrame(new), "marked": spark.createDataFrame(marked)}
    return {"path": path, **frames}
