"""Change data under Spark in Hudi's shape, as a query of a range and as a stream, of a table that logs no changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from tests.helpers.fixture_tables import read_expectations, unpack
from tests.helpers.lakehouse import refusal
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.spark

CDC = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc"}
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"
SCHEMA = a_schema(id="string", v="int64")


def plain_image(image: str | None) -> Any:
    return (
        None
        if image is None
        else {name: value for name, value in json.loads(image, parse_int=float).items() if value is not None}
    )


def changes_as_text(frame: DataFrame) -> list[str]:
    rows = [
        {**row.asDict(), "before": plain_image(row["before"]), "after": plain_image(row["after"])}
        for row in frame.collect()
    ]
    return sorted(json.dumps({key: of for key, of in row.items() if of is not None}, sort_keys=True) for row in rows)


@pytest.mark.parametrize("name", ["hudi_changes/v6_cow_cdc", "hudi_changes/v9_mor_cdc_logs"])
def test_change_data_ranges_equal_hudis(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder = unpack(name, tmp_path)
    read = next(each for each in read_expectations(name)["reads"] if each["format"] == "cdc" and each["end"] is None)
    found = spark.read.format("lakehouse").options(**CDC, **{BEGIN: read["begin"]}).load(str(folder))
    assert found.columns == ["op", "ts_ms", "before", "after"]
    rows = json.loads(json.dumps(read["rows"]), parse_int=float)
    wanted = [{key: value for key, value in row.items() if value is not None} for row in rows]
    assert changes_as_text(found) == sorted(json.dumps(row, sort_keys=True) for row in wanted)


def test_stream_of_change_data_returns_every_change(spark: SparkSession, tmp_path: Path) -> None:
    def rows(**values: int) -> pa.Table:
        return pa.table({"id": list(values), "v": list(values.values())}, schema=SCHEMA)

    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    batches: list[list[tuple[Any, ...]]] = []

    def take(batch: DataFrame, _: int) -> None:
        rows = ((row["op"], plain_image(row["before"]), plain_image(row["after"])) for row in batch.collect())
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


MOVING = a_schema(id="int64", p="string", v="string")


def moving(*rows: tuple[int, str, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(MOVING.names, row, strict=True)) for row in rows], MOVING)


def replay(images: list[Any]) -> dict[int, Any]:
    """Return a replica by id, made as the docs say: by commit time, then deletes first."""
    replica: dict[int, Any] = {}
    for image in sorted(images, key=lambda image: (image["ts_ms"], image["op"] != "d")):
        before, after = (json.loads(image[name]) if image[name] else None for name in ("before", "after"))
        if after is None:
            replica.pop(before["id"], None)
        else:
            replica[after["id"]] = after
    return replica


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_replica_equals_the_table(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Rows move, are overwritten and come back.

    Each file group is in a task of its own; a batch has several commits.
    """
    path = str(tmp_path / "t")
    options = {"table_type": kind, "hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.parquet.max.file.size": 1}
    table = lakeformat.create(path, MOVING, record_key="id", partition_by="p", **options)
    table.upsert(moving((1, "b", "x"), (2, "b", "y"), (3, "c", "z"), (4, "c", "w")))
    table.upsert(moving((1, "a", "moved"), (3, "b", "moved"), (5, "a", "new")))
    table.overwrite(moving((1, "b", "over"), (5, "a", "over"), (6, "c", "over")))
    table.insert_overwrite(moving((1, "b", "again"), (7, "b", "again")))
    wanted = {row["id"]: row for row in table.to_arrow(meta_columns=False).to_pylist()}
    found = spark.read.format("lakehouse").options(**CDC, **{BEGIN: "000", "lakeformat.read.split.bytes": 1}).load(path)
    images = found.collect()
    assert found.rdd.getNumPartitions() > 4
    assert replay(images) == wanted
    seen = [(row["ts_ms"], json.loads(row["after"] or row["before"])["id"]) for row in images]
    assert len(set(seen)) == len(seen), "a key has several images in a commit"
    taken: list[Any] = []
    stream = spark.readStream.format("lakehouse").options(**CDC).load(path)
    writer = stream.writeStream.foreachBatch(lambda batch, _: taken.extend(batch.collect()))
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert replay(taken) == wanted


def test_options_without_meaning_for_change_data_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", SCHEMA, record_key="id").upsert(pa.table({"id": ["a"], "v": [1]}))
    load = spark.read.format("lakehouse").options(**CDC)
    assert (
        "the option is hoodie.datasource.read.begin" in refusal(lambda: load.load(str(tmp_path / "t")).collect()).text
    )
    where = load.options(**{BEGIN: "000", "where": "v > 0"})
    assert "filter the frame instead" in refusal(lambda: where.load(str(tmp_path / "t")).collect()).text
