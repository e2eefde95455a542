"""Change data under Spark in Hudi's shape: a query of a range, and a stream; of a table that logs no changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from tests.helpers.fixture_tables import expected, unpack
from tests.helpers.lakehouse import refusal

pytestmark = pytest.mark.spark

CDC = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc"}
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


def plain(image: str | None) -> Any:
    return (
        None
        if image is None
        else {name: value for name, value in json.loads(image, parse_int=float).items() if value is not None}
    )


def told(frame: DataFrame) -> list[str]:
    rows = [{**row.asDict(), "before": plain(row["before"]), "after": plain(row["after"])} for row in frame.collect()]
    return sorted(json.dumps({key: of for key, of in row.items() if of is not None}, sort_keys=True) for row in rows)


@pytest.mark.parametrize("name", ["hudi_changes/v6_cow_cdc", "hudi_changes/v9_mor_cdc_logs"])
def test_ranges_equal_hudis(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder = unpack(name, tmp_path)
    read = next(each for each in expected(name)["reads"] if each["format"] == "cdc" and each["end"] is None)
    found = spark.read.format("lakehouse").options(**CDC, **{BEGIN: read["begin"]}).load(str(folder))
    assert found.columns == ["op", "ts_ms", "before", "after"]
    rows = json.loads(json.dumps(read["rows"]), parse_int=float)
    wanted = [{key: value for key, value in row.items() if value is not None} for row in rows]
    assert told(found) == sorted(json.dumps(row, sort_keys=True) for row in wanted)


def test_a_stream_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    def rows(**values: int) -> pa.Table:
        return pa.table({"id": list(values), "v": list(values.values())}, schema=SCHEMA)

    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    batches: list[list[tuple[Any, ...]]] = []

    def take(batch: DataFrame, _: int) -> None:
        rows = ((row["op"], plain(row["before"]), plain(row["after"])) for row in batch.collect())
        batches.append(sorted(rows, key=str))

    def run() -> None:
        stream = spark.readStream.format("lakehouse").options(**CDC, columns="v").load(str(tmp_path / "t"))
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    table.upsert(rows(a=1, b=2))
    run()
    table.upsert(rows(a=3))
    table.delete(rows(b=0).select(["id"]))
    table.upsert(rows(c=4).append_column("w", pa.array([1.5])))
    run()
    assert batches == [
        [("i", None, {"v": 1}), ("i", None, {"v": 2})],
        [("d", {"v": 2}, None), ("i", None, {"v": 4}), ("u", {"v": 1}, {"v": 3})],
    ]


def test_what_has_no_meaning_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", SCHEMA, record_key="id").upsert(pa.table({"id": ["a"], "v": [1]}))
    load = spark.read.format("lakehouse").options(**CDC)
    assert "set hoodie.datasource.read.begin" in refusal(lambda: load.load(str(tmp_path / "t")).collect()).text
    where = load.options(**{BEGIN: "000", "where": "v > 0"})
    assert "filter the frame instead" in refusal(lambda: where.load(str(tmp_path / "t")).collect()).text
