"""Tables of many columns: twice the columns cost twice the work of a write and a read, not four times."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat

COLUMNS = 120
#: Work that grows with the square of the columns would be four times as much.
MOST = 2.2


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count the calls of Python functions, and of steps of generators, in all threads that start meanwhile."""
    calls = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        calls[0] += event in ("call", "c_call")

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def rows(columns: int, start: int, end: int) -> pa.Table:
    """Return rows with ``columns`` columns beside the key."""
    numbers = pa.array(range(start, end), pa.int64())
    return pa.table({"id": numbers, **{f"c{at}": numbers for at in range(columns)}})


def steps(table: lakeformat.Table, columns: int) -> dict[str, Callable[[], object]]:
    """Return the counted steps by name. They run in this order, on one table."""
    merged = rows(columns, 30, 35)
    return {
        "insert": lambda: table.insert(rows(columns, 0, 100)),
        "upsert": lambda: table.upsert(rows(columns, 20, 40)),
        "read": table.to_arrow,
        "read with a filter": lambda: table.to_arrow(where="c3 > 50"),
        "merge": lambda: table.merge(merged).when_matched_update().execute(),
        "delete by condition": lambda: table.delete(where="c3 = 7"),
        "compact": lambda: table.compact() if table.config.table_type.value == "MERGE_ON_READ" else None,
        "changes with images": lambda: table.changes("000", images=True).to_arrow(),
        "check": table.check,
    }


def work(path: Path, columns: int, kind: str) -> dict[str, int]:
    """Count each step's calls on a table of ``columns`` columns, all of which are in the file index."""
    indexed = {"hoodie.metadata.index.column.stats.max.columns.to.index": 100_000}
    table = lakeformat.create(path, rows(columns, 0, 0).schema, record_key="id", table_type=kind, **indexed)
    found = {}
    for name, step in steps(lakeformat.open(path, **indexed), columns).items():
        with counted_calls() as calls:
            step()
        found[name] = calls[0]
    assert table.to_arrow(["id"]).num_rows == 99
    return found


@pytest.mark.parametrize("kind", [pytest.param("COPY_ON_WRITE", marks=pytest.mark.slow), "MERGE_ON_READ"])
def test_work_grows_linearly_with_the_columns(tmp_path: Path, kind: str) -> None:
    work(tmp_path / "first", 5, kind)  # This run imports modules and fills caches.
    few, many = (work(tmp_path / str(columns), columns, kind) for columns in (COLUMNS, 2 * COLUMNS))
    assert {name: many[name] for name in few if many[name] > MOST * few[name]} == {}
