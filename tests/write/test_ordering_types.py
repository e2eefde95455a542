"""Merge-on-read tables ordered by columns of every type: a late delete loses, a newer one wins.

This holds before and after compaction. A type that delete blocks cannot hold is refused when the table is made.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import SchemaMismatchError

#: Type -> the ordering value at a point in time.
TYPES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "date": (pa.date32(), lambda at: dt.date(2024, 1, at)),
    "decimal": (pa.decimal128(10, 2), lambda at: Decimal(at) / 4),
    "widest decimal": (pa.decimal128(30, 15), lambda at: Decimal(at) * 10**13),
    "timestamp": (pa.timestamp("us", "UTC"), lambda at: dt.datetime(2024, 1, at, tzinfo=dt.timezone.utc)),
    "naive timestamp": (pa.timestamp("us"), lambda at: dt.datetime(2024, 1, at)),
    "boolean": (pa.bool_(), lambda at: at >= 5),
    "text": (pa.string(), lambda at: f"{at:02}"),
    "float": (pa.float32(), lambda at: at / 4),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("version", [6, 9])
def test_deletes_are_ordered_by_any_type(version: int, kind: str, tmp_path: Path) -> None:
    stored, value = TYPES[kind]
    schema = pa.schema({"id": pa.int64(), "at": stored, "_hoodie_is_deleted": pa.bool_()})

    def rows(ids: list[int], at: int, *, deleted: bool) -> pa.Table:
        return pa.table([ids, [value(at)] * len(ids), [deleted] * len(ids)], schema=schema)

    table = lakeformat.create(
        tmp_path / "t",
        schema,
        record_key="id",
        ordering="at",
        table_type="MERGE_ON_READ",
        **{"hoodie.write.table.version": version},
    )
    table.upsert(rows([1, 2, 3], 5, deleted=False))
    table.upsert(rows([1], 3, deleted=True))
    table.upsert(rows([2], 6, deleted=True))
    assert list((tmp_path / "t").rglob(".*.log.*"))
    assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == [1, 3]
    table.compact()
    assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == [1, 3]


@pytest.mark.parametrize("stored", [pa.binary(), pa.decimal128(38, 18), pa.decimal128(20, 2)], ids=str)
def test_a_type_that_delete_blocks_cannot_hold_is_refused_at_creation(stored: pa.DataType, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "at": stored})
    settings = {"record_key": "id", "ordering": "at"}
    with pytest.raises(
        SchemaMismatchError, match=r"'at' is .*cannot store for a deleted row; order by .*COPY_ON_WRITE"
    ):
        lakeformat.create(tmp_path / "t", schema, table_type="MERGE_ON_READ", **settings)
    assert not (tmp_path / "t").exists()
    lakeformat.create(tmp_path / "copied", schema, **settings)
    lakeformat.create(
        tmp_path / "last", schema, table_type="MERGE_ON_READ", merge_mode="COMMIT_TIME_ORDERING", **settings
    )


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_late_delete_with_the_least_date_loses(kind: str, tmp_path: Path) -> None:
    """Delete blocks hold 1970-01-01 as the int 0, which readers take for "delete any version"."""
    schema = pa.schema({"id": pa.int64(), "at": pa.date32(), "_hoodie_is_deleted": pa.bool_()})
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", ordering="at", table_type=kind)
    days = [dt.date(1970, 1, 5), dt.date(1969, 1, 5), dt.date(1970, 1, 1)]
    table.upsert(pa.table([[1, 2, 3], days, [False] * 3], schema=schema))
    table.upsert(pa.table([[1, 2, 3], [dt.date(1970, 1, 1)] * 3, [True] * 3], schema=schema))
    assert table.to_arrow(columns=["id"])["id"].to_pylist() == [1]
