"""Ordering columns of several types: Hudi 1.2.0 keeps and drops the same rows as lakeformat, which wrote them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi

pytestmark = pytest.mark.interop

#: Type -> ordering values of an older delete, of the rows, and of a newer delete.
TYPES: dict[str, tuple[pa.DataType, tuple[Any, Any, Any]]] = {
    "date": (pa.date32(), (dt.date(2024, 1, 3), dt.date(2024, 1, 5), dt.date(2024, 1, 6))),
    "decimal": (pa.decimal128(10, 2), (Decimal("-1.25"), Decimal("0.25"), Decimal("3.50"))),
}


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_orders_our_deletes(version: int, kind: str, hudi: Hudi, tmp_path: Path) -> None:
    stored, (older, middle, newer) = TYPES[kind]
    schema = pa.schema({"id": pa.int64(), "at": stored, "_hoodie_is_deleted": pa.bool_()})
    table = lakeformat.create(
        tmp_path / "t",
        schema,
        record_key="id",
        ordering="at",
        table_type="MERGE_ON_READ",
        **{"hoodie.write.table.version": version},
    )
    table.upsert(pa.table([[1, 2, 3], [middle] * 3, [False] * 3], schema=schema))
    table.upsert(pa.table([[1], [older], [True]], schema=schema))
    table.upsert(pa.table([[2], [newer], [True]], schema=schema))
    assert sorted(hudi.read(tmp_path / "t").column("id").to_pylist()) == [1, 3]


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize(("version", "ordering"), [(6, "text"), (9, "text"), (9, "text,number"), (9, "number,text")])
def test_hudi_orders_our_rows_by_texts(version: int, ordering: str, hudi: Hudi, tmp_path: Path) -> None:
    """A late row in our log file loses, also if the next row of the log file has a greater text."""
    schema = pa.schema({"id": pa.string(), "text": pa.string(), "number": pa.int64(), "v": pa.string()})
    options = {"table_type": "MERGE_ON_READ", "hoodie.write.table.version": version}
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", ordering=ordering, **options)
    table.upsert(pa.table([list("abcd"), ["m"] * 4, [5] * 4, ["old"] * 4], schema=schema))
    table.upsert(pa.table([list("abcd"), list("bzcy"), [4, 6, 4, 7], ["late", "new", "late", "new"]], schema=schema))
    wanted = ["old", "new", "old", "new"]
    for rows in (hudi.read(tmp_path / "t"), table.to_arrow()):
        assert rows.sort_by("id").column("v").to_pylist() == wanted
