"""Tables of version 9 written by Spark: staged and direct in tasks, exchanged, by statements, and clustered."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.spark import LakehouseTable
from tests.helpers import hudi_rs
from tests.helpers.lakehouse import Rows, flights, write

pytestmark = pytest.mark.spark

OPERATION = "hoodie.datasource.write.operation"


def rows_at(numbers: range, ts: int) -> Rows:
    return [(n, f"p{n % 2}", ts, float(n)) for n in numbers]


def by_id(path: Path) -> dict[int, tuple[str, int, float]]:
    assert not lakeformat.open(path).snapshot().timeline.pending
    assert not [file for file in (path / ".hoodie/.temp", path / ".hoodie/.lakeformat/stage") if any(file.rglob("*"))]
    rows = hudi_rs.assert_same_rows(lakeformat.open(path))
    return {row["id"]: (row["part"], row["ts"], row["x"]) for row in rows}


def model_of(*batches: Rows) -> dict[int, tuple[str, int, float]]:
    return {n: (part, ts, x) for rows in batches for n, part, ts, x in rows}


def test_every_write_path_works_on_version_9(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    first, second, third = rows_at(range(40), 1), rows_at(range(20, 60), 2), rows_at(range(50, 70), 3)
    write(flights(spark, first), path, **{"hoodie.write.table.version": "9", OPERATION: "bulk_insert"})
    assert lakeformat.open(path).config.version == 9
    write(flights(spark, second), path)
    assert by_id(path) == model_of(first, second)
    table = LakehouseTable.forPath(spark, str(path))
    assert table.upsert(flights(spark, third)).report["rows"] == {
        "incoming": 20,
        "inserted": 10,
        "updated": 10,
        "deleted": 0,
    }
    table.delete(where="id < 10")
    wanted = {n: row for n, row in model_of(first, second, third).items() if n >= 10}
    assert by_id(path) == wanted
    table.cluster(["x"])
    assert by_id(path) == wanted
    write(flights(spark, rows_at(range(0, 4, 2), 9)), path, **{OPERATION: "insert_overwrite"})
    assert by_id(path) == {n: row for n, row in wanted.items() if n % 2} | model_of(rows_at(range(0, 4, 2), 9))
    wanted = by_id(path)
    assert table.downgrade(8).after == 8
    assert by_id(path) == wanted
    names = {file.name.partition(".")[2] for file in (path / ".hoodie/timeline").iterdir()}
    assert names >= {"commit", "commit.requested", "inflight", "clustering.requested", "clustering.inflight"}
    assert names >= {"replacecommit", "replacecommit.requested", "replacecommit.inflight"}
