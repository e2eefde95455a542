"""Secondary indexes of Hudi that writes of lakeformat and of Hudi keep in turn: the queries of Hudi are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.fixture_tables import unpack
from tests.helpers.hudi_spark import Hudi, table_properties
from tests.metadata_table.test_foreign_indexes import TABLES
from tests.metadata_table.test_secondary_index import CITIES, assert_kept

pytestmark = pytest.mark.interop

#: Options with which Hudi keeps the indexes.
KEEPING = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.write.table.version": "9",
}
COLUMNS = ("id", "name", "city", "price", "ts", "part")


def row(number: int, city: str | None, ts: int, part: str = "a") -> dict[str, Any]:
    return {"id": number, "name": f"n{number}", "city": city, "price": 1.0, "ts": ts, "part": part}


def assert_queries(hudi: Hudi, path: Path, rows: list[dict[str, Any]]) -> None:
    hudi.run(f"CREATE OR REPLACE TEMPORARY VIEW cities USING hudi OPTIONS (path '{path}')")
    for city in sorted({each["city"] for each in rows if each["city"]} | {"rome", "nowhere"}):
        text = city.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\x00", "\\0")
        found = hudi.sql(f"SELECT id FROM cities WHERE city = '{text}'")["id"].to_pylist()  # noqa: S608
        assert sorted(found) == sorted(each["id"] for each in rows if each["city"] == city), city


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("name", TABLES)
def test_writes_of_both_in_turn(name: str, hudi: Hudi, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    table = lakeformat.open(path)
    schema = pa.schema({"id": "int32", "name": "string", "city": "string", "price": "f8", "ts": "i8", "part": "string"})

    def write(rows: list[dict[str, Any]], operation: str = "upsert") -> None:
        hudi.write(path, pa.Table.from_pylist(rows, schema), operation, **KEEPING)

    def check() -> None:
        assert_kept(path)
        assert_queries(hudi, path, lakeformat.open(path).to_arrow(list(COLUMNS)).to_pylist())

    table.upsert([row(1, "oslo", 900_000), *(row(10 + n, city, 1) for n, city in enumerate(CITIES))])
    check()
    write([row(1, "rome", 910_000), row(10, "oslo", 2), row(30, "x$y", 1, "b")])
    check()
    table.delete([{"id": 30, "part": "b", "ts": 5}, {"id": 12, "part": "a", "ts": 5}])
    table.upsert([row(1, "paris", 1), row(11, "rome", 3)])  # The first one loses.
    check()
    write([row(13, "", 9), row(14, "", 9)], "delete")
    write([row(30, "rome", 9, "b"), row(11, None, 10)])
    check()
    table.compact() if name.endswith("v9_mor_indexes") else table.cluster()
    table.rollback()
    table.insert_overwrite([row(40, "rome", 1, "b")])
    check()


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_uses_and_keeps_an_index_that_lakeformat_has_made(kind: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "made"
    schema = pa.schema({"id": "int32", "name": "string", "city": "string", "price": "f8", "ts": "i8", "part": "string"})
    options = {"hoodie.write.table.version": 9, "hoodie.datasource.write.hive_style_partitioning": True}
    table = lakeformat.create(
        path, schema, record_key="id", partition_by="part", ordering="ts", table_type=kind, **options
    )
    table.upsert(pa.Table.from_pylist([row(n, CITIES[n % len(CITIES)], 1, "ab"[n % 2]) for n in range(20)], schema))
    table.create_index("idx_city", ["city"])
    for _ in range(2):
        assert_kept(path)
        assert_queries(hudi, path, lakeformat.open(path).to_arrow(list(COLUMNS)).to_pylist())
        rows = [row(2, "rome", 5), row(3, "oslo", 5, "b"), row(40, "x$y", 5)]
        hudi.write(path, pa.Table.from_pylist(rows, schema), "upsert", **KEEPING)
    assert "secondary_index_idx_city" in table_properties(path)["hoodie.table.metadata.partitions"]
    assert lakeformat.open(path).drop_index("idx_city") == ("secondary_index_idx_city",)
    assert_queries(hudi, path, lakeformat.open(path).to_arrow(list(COLUMNS)).to_pylist())
