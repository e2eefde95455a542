"""Tables whose files hold no partition columns (``…drop.partition.columns=true``), written by both in turn.

Oracle: a dict.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)]

SCHEMA: Final = a_schema(id="int64", part="int32", ts="int64", v="string")
DROP: Final = {"hoodie.datasource.write.drop.partition.columns": "true"}
Model = dict[int, dict[str, Any]]


def rows_of(ids: range, ts: int) -> Model:
    return {n: {"id": n, "part": n % 2, "ts": ts, "v": f"{n}@{ts}"} for n in ids}


def batch(ids: range, ts: int) -> pa.Table:
    return pa.Table.from_pylist(list(rows_of(ids, ts).values()), SCHEMA)


def assert_both_read(path: Path, hudi: Hudi, model: Model) -> None:
    """Compare the rows. After a copy-on-write commit of its own, Hudi knows the type of the partition no more."""
    ours, theirs = lakeformat.open(path).to_arrow(), hudi.read(path)
    assert ours.schema.field("part").type == pa.int32()
    for rows in (ours.to_pylist(), theirs.to_pylist()):
        found = {row["id"]: {name: row[name] for name in SCHEMA.names} | {"part": int(row["part"])} for row in rows}
        assert len(found) == len(rows), "a record key is doubled"
        assert found == model


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_both_read_the_rows_of_alternating_writes(kind: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    version = {"hoodie.write.table.version": "9"}
    options: dict[str, Any] = {**version, **DROP, "table_type": kind}
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="part", ordering="ts", **options)
    table.insert(batch(range(8), 1))
    table.upsert(batch(range(4, 12), 2))
    table.delete(where="id = 0 and part = 0")
    model = rows_of(range(1, 8), 1) | rows_of(range(4, 12), 2)
    assert_both_read(path, hudi, model)
    job = {**version, **DROP, "hoodie.datasource.write.table.type": kind}
    hudi.write(path, batch(range(2, 6), 3), "upsert", **job)
    model |= rows_of(range(2, 6), 3)
    assert_both_read(path, hudi, model)
    table = lakeformat.open(path)
    table.upsert(batch(range(5, 14), 4))
    model |= rows_of(range(5, 14), 4)
    hudi.delete(path, batch(range(1, 3), 5), **job)
    model = {n: row for n, row in model.items() if n > 2}
    assert_both_read(path, hudi, model)
    if kind == "MERGE_ON_READ":
        lakeformat.open(path).compact()
        assert_both_read(path, hudi, model)
    lakeformat.open(path).cluster(by=["v"])
    assert_both_read(path, hudi, model)
    hudi.write(path, batch(range(10, 16), 6), "upsert", **job)
    model |= rows_of(range(10, 16), 6)
    lakeformat.open(path).insert_overwrite(batch(range(1, 7, 2), 7))
    model = {n: row for n, row in model.items() if n % 2 == 0} | rows_of(range(1, 7, 2), 7)
    assert_both_read(path, hudi, model)
