"""read(spark, path): Spark's own filters skip folders, and the rows are those of plain Python."""

from __future__ import annotations

import datetime as dt
import logging
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
from lakeformat import InvalidInputError
from lakeformat.spark import LakehouseTable, read
from lakeformat.spark.reads.frames import ReadFacts, choose_way
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.spark

DAY = dt.date(2026, 1, 2)
PLACES = ["a", "a=b", "5% off", "café/x", "a b", "[*]?", "", None]
#: By kind: partition columns, options, and the columns of which Spark knows the folders' values.
STYLES: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "plain": ("place", {"hoodie.datasource.write.partitionpath.urlencode": True}, {"place"}),
    "hive, two columns": (
        "day,place",
        {
            "hoodie.datasource.write.hive_style_partitioning": True,
            "hoodie.datasource.write.partitionpath.urlencode": True,
        },
        {"day", "place"},
    ),
    "numbers": ("n", {}, {"n"}),
    "months of days": (
        "at",
        {
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
            "hoodie.keygen.timebased.timestamp.type": "SCALAR",
            "hoodie.keygen.timebased.timestamp.scalar.time.unit": "MICROSECONDS",
            "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
        },
        set(),
    ),
    "none": ("", {}, set()),
}
SCHEMA = a_schema(
    id="int64",
    place="string",
    day="date32",
    n="int32",
    at=pa.timestamp("us", "UTC"),
    x="float64",
    s=pa.struct([("f", pa.float32())]),
)
FILTERS = [
    "place = 'a=b'", "place is null", "place is not null and n > 1", "place = ''", "place in ('café/x', '5% off')",
    "place like 'a%'", "day = date'2026-01-02'", "day < '2026-01-02' or n = 3", "n in (0, 3)", "not n = 1",
    "at >= timestamp'2026-02-01 00:00:00'", "x > 100", "s.f > 2 and n < 3", "id = 4 and place = 'a b'",
]  # fmt: skip


def rows() -> pa.Table:
    count = 2 * len(PLACES)
    numbers = range(count)
    return pa.table(
        {
            "id": list(numbers),
            "place": [PLACES[at % len(PLACES)] for at in numbers],
            "day": [DAY - dt.timedelta(days=at % 2) for at in numbers],
            "n": [at % 4 for at in numbers],
            "at": [dt.datetime(2026, 1 + at % 3, 1 + at, tzinfo=dt.timezone.utc) for at in numbers],
            "x": [float("nan") if at == 3 else at / 2 for at in numbers],
            "s": [None if at == 5 else {"f": float("nan") if at == 6 else at / 4} for at in numbers],
        },
        schema=SCHEMA,
    )


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def lines(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def pruning(frame: DataFrame) -> set[str]:
    """Return the columns by which Spark skips folders."""
    relations = frame._jdf.queryExecution().analyzed().collectLeaves()
    found: set[str] = set()
    for at in range(relations.size()):
        leaf = relations.apply(at)
        if leaf.getClass().getSimpleName() == "LogicalRelation":
            found |= set(leaf.relation().partitionSchema().fieldNames())
    return found


def files_read(frame: DataFrame) -> int:
    """Return the number of files that Spark's scans read, according to their metrics."""
    plan = frame._jdf.queryExecution().executedPlan()
    frame._jdf.queryExecution().toRdd().count()
    text = plan.toString()
    assert "FileScan" in text
    leaves = plan.collectLeaves()
    return sum(leaves.apply(at).metrics().apply("numFiles").value() for at in range(leaves.size()))


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_ordinary_filters_select_the_rows_that_plain_python_selects(
    style: str, spark: SparkSession, tmp_path: Path
) -> None:
    by, options, known = STYLES[style]
    table = lakeformat.create(tmp_path / "t [0]", SCHEMA, record_key="id", partition_by=by or (), **options)
    table.bulk_insert(rows())
    table.upsert(rows().slice(0, 3))
    location = table.context.storage.location
    frame = read(spark, location)
    assert frame.columns == SCHEMA.names
    assert lines(frame) == lines(read(spark, location, via="source"))
    assert pruning(frame) == known
    wanted = {at: sorted(table.to_arrow(["id"], where=text)["id"].to_pylist()) for at, text in enumerate(FILTERS)}
    answers = [frame.where(text).select(functions.lit(at).alias("at"), "id") for at, text in enumerate(FILTERS)]
    found = reduce(DataFrame.union, answers).collect()
    assert {at: sorted(row.id for row in found if row.at == at) for at in wanted} == wanted
    assert ids(read(spark, location, where=FILTERS[2])) == wanted[2]


def test_folders_are_left_out_and_counts_need_no_job(spark: SparkSession, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", partition_by="n")
    table.bulk_insert(rows())
    frame = read(spark, str(tmp_path))
    assert files_read(frame.where("n = 1")) == 1
    assert files_read(frame.where("n > 1 and x < 4")) == 2
    assert files_read(frame.where("n > 1 and x < 3")) == 1
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = len(jobs(None))
    assert frame.count() == 16
    assert len(jobs(None)) == before
    assert frame.where("n = 1").count() == frame.groupBy("n").count().where("n = 1").first()["count"] == 4
    table.upsert(rows().slice(0, 2).set_column(0, "id", pa.array([100, 101])))
    assert frame.count() == frame.select("id").distinct().count() == 16
    assert read(spark, str(tmp_path)).count() == 18
    assert read(spark, str(tmp_path), as_of=table.history()[-1].instant_time).count() == 16
    cached = frame.cache()
    assert cached.count() == 16
    assert cached.storageLevel.useMemory
    assert spark.sparkContext._jsc.sc().getRDDStorageInfo()
    cached.unpersist()


def test_rows_in_a_folder_of_another_value_are_found(spark: SparkSession, tmp_path: Path) -> None:
    stays = {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": False}
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", partition_by="place", **stays)
    one = rows().slice(0, 2)
    table.upsert(one)
    table.upsert(one.slice(0, 1).set_column(1, "place", pa.array(["z"])))
    frame = read(spark, str(tmp_path))
    assert ids(frame.where("place = 'z'")) == [0]
    assert ids(frame.where("place = 'a'")) == []
    assert ids(frame.where("place = 'a=b'")) == [1]


def test_empty_table_and_fully_skipped_read_return_no_row(spark: SparkSession, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", partition_by="n")
    assert read(spark, str(tmp_path)).collect() == []
    assert read(spark, str(tmp_path)).count() == 0
    table.bulk_insert(rows())
    assert read(spark, str(tmp_path), where="n = 7").count() == 0
    assert LakehouseTable.forPath(spark, str(tmp_path)).read(["n", "id"], where="id < 3").columns == ["n", "id"]
    meta = read(spark, str(tmp_path), meta_columns=True)
    assert meta.columns[:2] == ["_hoodie_commit_time", "_hoodie_commit_seqno"]
    assert meta.where("_hoodie_partition_path = '3'").count() == 4


def test_read_path_is_chosen_by_a_rule_logged_and_overridable(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ways = {
        ReadFacts(0): "native",
        ReadFacts(10_000, pushes=True): "native",
        ReadFacts(10_001): "native",
        ReadFacts(10_001, pushes=True): "source",
        ReadFacts(100_001): "source",
        ReadFacts(100_001, pushes=True, indexed=True): "native",
        ReadFacts(4, unreadable=2): "native",
        ReadFacts(4, unreadable=3): "source",
        ReadFacts(100_001, requested_way="native"): "native",
        ReadFacts(1, requested_way="source"): "source",
    }
    assert {known: choose_way(known).name for known in ways} == ways
    lakeformat.create(tmp_path, SCHEMA, record_key="id").insert(rows())
    with caplog.at_level(logging.INFO, "lakeformat.spark"):
        frames = [read(spark, str(tmp_path), ["id"], where="n = 1", via=via) for via in (None, "source")]
    assert [ids(frame) for frame in frames] == [[1, 5, 9, 13]] * 2
    assert "Spark's own scan: 1 files" in caplog.text
    assert "the data source: as requested" in caplog.text
    condition = (functions.col("_hoodie_record_key") == "5") & (functions.col("id") > 1)
    by_column = [read(spark, str(tmp_path), ["n"], where=condition, via=via) for via in (None, "source")]
    assert [list(map(tuple, frame.collect())) for frame in by_column] == [[(1,)], [(1,)]]
    with pytest.raises(InvalidInputError, match="via='jvm'"):
        read(spark, str(tmp_path), via="jvm")
