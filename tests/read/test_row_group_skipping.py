"""The task that reads a file skips row groups by the footer, which it opens in any case."""

from __future__ import annotations

import functools
import operator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Table
from lakeformat.read.plan import FilePart, Split
from lakeformat.read.query import resolve_query
from lakeformat.read.run.batches import read_split
from tests.helpers.skipping_tables import batch, new_table

#: Row groups 0 to 3 have three rows each.
VALUES = list(range(12))


@pytest.fixture
def table() -> Table:
    made = new_table()
    made.insert(batch(x=pa.array(VALUES, pa.int64()), f=pa.array(VALUES, pa.float64())))
    return made


def groups_read(
    table: Table,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    skipping: bool = True,
    part: Any = None,
    nan_free: tuple[str, ...] = (),
) -> tuple[list[int], list[int]]:
    """Return the row groups decoded and the values found, if the plan knew no statistics."""
    decoded: list[int] = []
    decode = pq.ParquetFile.iter_batches

    def noting(self: pq.ParquetFile, *arguments: Any, row_groups: list[int], **others: Any) -> Any:
        decoded.extend(row_groups)
        return decode(self, *arguments, row_groups=row_groups, **others)

    snapshot = table.snapshot()
    assert snapshot.schema is not None
    query = replace(resolve_query(snapshot.schema, table.options, columns=["x"], where=where), skipping=skipping)
    (file,) = snapshot.files
    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetFile, "iter_batches", noting)
        split = Split((FilePart(file.path, file.size_bytes, part, nan_free),))
        found = [batch["x"].to_pylist() for batch in read_split(table.context.storage, split, query, snapshot.schema)]
    return decoded, functools.reduce(operator.iadd, found, [])


@pytest.mark.parametrize(
    ("where", "groups", "values"),
    [
        ("x = 4", [1], [4]),
        ("x < 2 or x > 9", [0, 3], [0, 1, 10, 11]),
        ("not x between 2 and 10", [0, 3], [0, 1, 11]),
        ("x is null", [], []),
        ("x in (5, 6, 100)", [1, 2], [5, 6]),
        ("true", [0, 1, 2, 3], VALUES),
    ],
)
def test_row_groups_that_cannot_match_are_not_decoded(
    where: str, groups: list[int], values: list[int], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert groups_read(table, where, monkeypatch) == (groups, values)
    everything = [0, 1, 2, 3]
    assert groups_read(table, where, monkeypatch, skipping=False) == (everything, values)


def test_split_reads_only_its_row_groups(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert groups_read(table, "x < 5", monkeypatch, part=(1, 3)) == ([1], [3, 4])


def test_footer_bounds_do_not_exclude_nan(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert groups_read(table, "f > 9", monkeypatch) == ([0, 1, 2, 3], [10, 11])
    assert groups_read(table, "f > 9", monkeypatch, nan_free=("f",)) == ([3], [10, 11])
    assert groups_read(table, "f > 9 and f < 99", monkeypatch) == ([3], [10, 11])
