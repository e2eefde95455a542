"""Writes that drop the columns that their rows lack, by ``…schema.allow.auto.evolution.column.drop``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import SchemaMismatchError
from tests.helpers.tables import a_schema, a_table

DROP = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
WHOLE = a_schema(id="int64", name="string", ts="int64", p="string")
KEPT = a_schema(id="int64", ts="int64", p="string")
AGAIN = a_schema(id="int64", ts="int64", p="string", name="string")
#: Plain files: the compaction of merge-on-read tables is not of this test.
PLAIN = {"lakeformat.compact.auto": "false"}


def rows(schema: pa.Schema, *values: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in values], schema)


def first_table(path: Path, *, merge_on_read: bool, version: int) -> None:
    given = rows(WHOLE, (1, "n1", 1, "a"), (2, "n2", 1, "b"), (3, "n3", 1, "a"))
    a_table(path, rows=given, partition_by="p", ordering="ts", merge_on_read=merge_on_read, version=version, **PLAIN)


def sorted_rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lakeformat.open(path).to_arrow().sort_by("id").to_pylist()
    return found


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("merge_on_read", [False, True])
def test_a_column_that_the_rows_lack_is_dropped(merge_on_read: bool, version: int, tmp_path: Path) -> None:
    path = tmp_path / "t"
    first_table(path, merge_on_read=merge_on_read, version=version)
    with pytest.raises(SchemaMismatchError, match="the input has no column 'name'"):
        lakeformat.open(path, **PLAIN).upsert(rows(KEPT, (1, 2, "a")))
    lakeformat.open(path, **DROP, **PLAIN).upsert(rows(KEPT, (1, 2, "a")))
    assert sorted_rows(path) == [
        {"id": 1, "ts": 2, "p": "a"},
        {"id": 2, "ts": 1, "p": "b"},
        {"id": 3, "ts": 1, "p": "a"},
    ]
    assert lakeformat.open(path).read(where="ts = 2").to_arrow().num_rows == 1
    lakeformat.open(path, **PLAIN).upsert(rows(AGAIN, (4, 3, "b", "n4")))
    names = {row["id"]: row["name"] for row in sorted_rows(path)}
    # Base files that were not written again have the old values, as in Hudi.
    assert names[4] == "n4"
    assert names[1] is None
    assert not list(lakeformat.open(path).check())


def test_columns_may_come_and_go_in_one_write(tmp_path: Path) -> None:
    path = tmp_path / "t"
    first_table(path, merge_on_read=False, version=6)
    other = a_schema(id="int64", ts="int64", p="string", new="float64")
    lakeformat.open(path, **DROP).upsert(rows(other, (1, 2, "a", 0.5)))
    assert lakeformat.open(path).schema.names == other.names
    assert [row["new"] for row in sorted_rows(path)] == [0.5, None, None]


def test_key_and_ordering_columns_are_never_dropped(tmp_path: Path) -> None:
    path = tmp_path / "t"
    first_table(path, merge_on_read=False, version=6)
    with pytest.raises(SchemaMismatchError, match="'ts'"):
        lakeformat.open(path, **DROP).upsert(rows(a_schema(id="int64", p="string"), (1, "a")))
    with pytest.raises(SchemaMismatchError, match="'p'"):
        lakeformat.open(path, **DROP).upsert(rows(a_schema(id="int64", ts="int64"), (1, 2)))
    assert len(sorted_rows(path)) == 3
