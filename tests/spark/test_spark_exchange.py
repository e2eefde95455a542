"""The exchanged write of `LakehouseTable` leaves the same table as ``df.write…save()``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from lakeformat.errors import DuplicateKeyError, InvalidInputError
from lakeformat.spark import LakehouseTable
from lakeformat.write.workload.shuffle_plan import find_shuffle_values
from tests.helpers import hudi_rs
from tests.helpers.lakehouse import FLIGHT_COLUMNS, FLIGHTS, Rows, base_files, flights, leftovers

pytestmark = pytest.mark.spark

STORED: Final[Rows] = [(number, f"p{number % 3}", 10, 0.5) for number in range(300)]
#: Some rows are older and some newer than the stored ones, some are new, and some keys come twice, in other tasks.
CHANGES: Final[Rows] = [(n, f"p{n % 3}", 5 + n % 11, n / 2) for n in range(200, 420)] + [
    (n, f"p{n % 3}", 20, -1.0) for n in range(280, 330)
]

BUCKETS: Final = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"}


def save(rows: DataFrame, path: Path, operation: str, options: Mapping[str, Any]) -> None:
    mode = "overwrite" if operation == "overwrite" else "append"
    said = {} if operation == "overwrite" else {"operation": operation}
    rows.write.format("lakehouse").options(**options, **said).mode(mode).save(str(path))


def contents(path: Path) -> Rows:
    """Return the table's rows. Check that hudi-rs reads the same."""
    rows = hudi_rs.assert_same_rows(lakeformat.open(path))
    return sorted(tuple(row[name] for name in ("_hoodie_record_key", "id", "part", "ts", "x")) for row in rows)


@pytest.mark.parametrize(
    "operation",
    [
        *("upsert", "delete", "insert_overwrite"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("insert", "bulk_insert", "overwrite")),
    ],
)
def test_staged_and_shuffled_writes_leave_the_same_rows(operation: str, spark: SparkSession, tmp_path: Path) -> None:
    staged, exchanged = tmp_path / "staged", tmp_path / "exchanged"
    save(flights(spark, STORED), staged, "bulk_insert", FLIGHTS)
    shutil.copytree(staged, exchanged)
    table = LakehouseTable.forPath(spark, str(exchanged))
    options = {**FLIGHTS, "hoodie.combine.before.insert": operation in {"insert_overwrite", "overwrite"}}
    save(flights(spark, CHANGES, 3), staged, operation, options)
    result = getattr(table, operation)(flights(spark, CHANGES, 3))
    assert contents(exchanged) == contents(staged)
    assert leftovers(exchanged) == []
    ours, theirs = table.history()[0], LakehouseTable.forPath(spark, str(staged)).history()[0]
    assert (ours.instant_time, ours.operation) == (result.instant_time, theirs.operation)
    assert ours.report is not None
    assert theirs.report is not None
    assert ours.report["rows"] == theirs.report["rows"]


@pytest.mark.slow
def test_first_shuffled_write_creates_the_table_and_stream_batches_follow(spark: SparkSession, tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "t"
    flights(spark, STORED).write.parquet(str(source))
    flights(spark, CHANGES).write.mode("append").parquet(str(source))
    stream = spark.readStream.schema(FLIGHT_COLUMNS).option("maxFilesPerTrigger", 2).parquet(str(source))

    def upsert(batch: DataFrame, _: int) -> None:
        LakehouseTable.forPath(spark, str(path), **FLIGHTS).upsert(batch)

    query = stream.writeStream.foreachBatch(upsert).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    save(flights(spark, [*STORED, *CHANGES]), tmp_path / "once", "upsert", FLIGHTS)
    assert len(LakehouseTable.forPath(spark, str(path)).history()) == 2
    assert [row[:4] for row in contents(path)] == [row[:4] for row in contents(tmp_path / "once")]


def test_empty_frame_changes_nothing_except_by_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    empty = spark.createDataFrame([], FLIGHT_COLUMNS)
    table = LakehouseTable.create(spark, str(tmp_path), empty, **FLIGHTS)
    table.upsert(empty)
    table.bulk_insert(flights(spark, STORED))
    table.delete(empty)
    assert [row[1:] for row in contents(tmp_path)] == sorted(STORED, key=lambda row: str(row[0]))
    table.overwrite(empty)
    assert lakeformat.open(tmp_path).to_arrow().num_rows == 0


def test_refusals_of_tasks_and_of_the_caller_are_lakeformats_own(spark: SparkSession, tmp_path: Path) -> None:
    table = LakehouseTable.forPath(spark, str(tmp_path / "t"), **FLIGHTS)
    with pytest.raises(lakeformat.InvalidInputError, match="null"):
        table.upsert(flights(spark, [(1, "a", 1, 0.5), (None, "a", 1, 0.5)]))
    with pytest.raises(lakeformat.SchemaMismatchError, match="'ts'"):
        table.upsert(flights(spark, STORED).drop("ts"))
    with pytest.raises(lakeformat.InvalidOptionError, match="did you mean"):
        LakehouseTable.forPath(spark, str(tmp_path), recordkeey="id")
    assert leftovers(tmp_path / "t") == []


def test_memory_index_works_in_a_shuffled_write(spark: SparkSession, tmp_path: Path) -> None:
    table = LakehouseTable.forPath(spark, str(tmp_path), **FLIGHTS, **{"hoodie.index.type": "INMEMORY"})
    table.upsert(flights(spark, STORED))
    table.upsert(flights(spark, [(number, part, 20, 0.0) for number, part, _, _ in STORED[:7]]))
    assert [row[4] for row in contents(tmp_path) if row[3] == 20] == [0.0] * 7
    assert len(contents(tmp_path)) == len(STORED)


@pytest.mark.parametrize("options", [{"hoodie.datasource.insert.dup.policy": "drop"}, {}], ids=["drop", "no key"])
def test_inserts_with_a_policy_or_without_a_key(options: dict[str, str], spark: SparkSession, tmp_path: Path) -> None:
    settings = {**FLIGHTS, **options} if options else {"partitionpath": "part"}
    table = LakehouseTable.forPath(spark, str(tmp_path), **settings)
    table.insert(flights(spark, STORED))
    table.insert(flights(spark, STORED[:50]))
    keys = [row[0] for row in contents(tmp_path)]
    assert len(keys) == len(set(keys)) == (len(STORED) if options else len(STORED) + 50)


@pytest.mark.parametrize("kind", [pytest.param("COPY_ON_WRITE", marks=pytest.mark.slow), "MERGE_ON_READ"])
def test_tasks_fill_the_buckets_of_a_bucket_index(
    kind: str, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    staged, exchanged = tmp_path / "staged", tmp_path / "exchanged"
    options = {**FLIGHTS, **BUCKETS}
    options["hoodie.datasource.write.table.type"] = kind
    save(flights(spark, STORED), staged, "bulk_insert", options)
    shutil.copytree(staged, exchanged)
    table = LakehouseTable.forPath(spark, str(exchanged), **options)
    for rows, operation in ((CHANGES, "upsert"), (CHANGES[:50], "delete"), (STORED[:30], "insert_overwrite")):
        save(flights(spark, rows, 3), staged, operation, options)
        getattr(table, operation)(flights(spark, rows, 3))
        assert contents(exchanged) == contents(staged)
    assert leftovers(exchanged) == []
    assert "in one process" not in caplog.text


@pytest.mark.parametrize("kind", [pytest.param("COPY_ON_WRITE", marks=pytest.mark.slow), "MERGE_ON_READ"])
def test_tasks_move_the_rows_of_a_global_index(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    staged, exchanged = tmp_path / "staged", tmp_path / "exchanged"
    options = {**FLIGHTS, "hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.datasource.write.table.type": kind}
    save(flights(spark, STORED), staged, "bulk_insert", options)
    shutil.copytree(staged, exchanged)
    table = LakehouseTable.forPath(spark, str(exchanged), **options)
    moving = [(number, f"p{number % 4}", ts, x) for number, _, ts, x in CHANGES]
    for rows, operation in ((moving, "upsert"), (CHANGES[:50], "delete"), (STORED[:30], "insert_overwrite")):
        save(flights(spark, rows, 3), staged, operation, options)
        getattr(table, operation)(flights(spark, rows, 3))
        assert contents(exchanged) == contents(staged)
    assert leftovers(exchanged) == []


@pytest.mark.parametrize("index", ["AUTO", pytest.param("GLOBAL_SIMPLE", marks=pytest.mark.slow), "BUCKET"])
@pytest.mark.parametrize("kind", [pytest.param("COPY_ON_WRITE", marks=pytest.mark.slow), "MERGE_ON_READ"])
def test_tasks_merge_by_clauses(
    kind: str, index: str, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lakeformat.spark")
    changes = [row for row in {row[0]: row for row in CHANGES}.values() if row[0] % 3]
    found = []
    for place in ("driver", "executors"):
        options = {**FLIGHTS, **BUCKETS, "hoodie.datasource.write.table.type": kind, "hoodie.index.type": index}
        options["lakeformat.write.merge"] = place
        table = LakehouseTable.forPath(spark, str(tmp_path / place), **options)
        table.upsert(flights(spark, STORED, 2))
        merge = table.merge(flights(spark, changes, 3)).when_matched_delete("source.ts < 7")
        merge = merge.when_matched_update(
            {"x": lambda pairs: pairs.column("source.ts").cast("double")}, "target.ts = 10"
        )
        result = merge.when_not_matched_insert("source.id > 350").execute()
        found.append((contents(tmp_path / place), result.report["rows"]))
        assert ("executors merge" in caplog.text) == (place == "executors")
        with pytest.raises(InvalidInputError, match="more than once"):
            table.merge(flights(spark, [*changes[:1], *changes[:1]], 2)).when_matched_update().execute()
        assert leftovers(tmp_path / place) == []
    assert found[0] == found[1]
    model = {row[0]: row for row in STORED}
    for row in changes:
        if row[0] in model:  # All stored rows have ts = 10.
            model[row[0]] = (*model[row[0]][:3], float(row[2]))
        elif row[0] > 350:
            model[row[0]] = row
        if row[2] < 7 and row[0] < len(STORED):
            del model[row[0]]
    assert [row[1:] for row in found[1][0]] == sorted(model.values(), key=lambda row: str(row[0]))


@pytest.mark.parametrize("index", ["AUTO", "BUCKET"])
def test_tasks_refuse_keys_by_the_duplicate_policy(
    index: str, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = {"hoodie.datasource.insert.dup.policy": "fail", "hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    settings = {**FLIGHTS, **BUCKETS, **policy, "hoodie.index.type": index}
    table = LakehouseTable.forPath(spark, str(tmp_path), **settings)
    table.insert(flights(spark, STORED, 3))
    table.delete(flights(spark, STORED[3:5]))
    table.insert(flights(spark, STORED[3:5]))
    for rows, found in (
        ([*STORED[7:8], (900, "p0", 1, 1.0)], "1 record key(s) of the input are in the table already, e.g. '7'"),
        ([(900, "p0", 1, 1.0)] * 3, "1 record key(s) come more than once in the input, e.g. '900'"),
    ):
        with pytest.raises(DuplicateKeyError, match=re.escape(found)):
            table.insert(flights(spark, rows, 3))
    assert len(contents(tmp_path)) == len(STORED)
    assert leftovers(tmp_path) == []
    assert "in one process" not in caplog.text


@pytest.mark.parametrize("mode", ["GLOBAL_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_SORT"])
def test_bulk_inserts_keep_their_layout(mode: str, spark: SparkSession, tmp_path: Path) -> None:
    table = LakehouseTable.forPath(spark, str(tmp_path), **FLIGHTS, **{"hoodie.bulkinsert.sort.mode": mode})
    table.bulk_insert(flights(spark, STORED, 3))
    assert [row[1:] for row in contents(tmp_path)] == sorted(STORED, key=lambda row: str(row[0]))
    files = [pq.read_table(tmp_path / name)["_hoodie_record_key"].to_pylist() for name in base_files(tmp_path)]
    assert len(files) == 3 or mode == "PARTITION_SORT"
    assert mode == "PARTITION_PATH_REPARTITION" or all(keys == sorted(keys) for keys in files)
    assert leftovers(tmp_path) == []


def test_spark_sends_each_shuffle_value_to_its_task(spark: SparkSession) -> None:
    values = find_shuffle_values(37)
    rows = spark.createDataFrame([(value,) for value in values], "value int").repartition(37, "value")
    placed = rows.selectExpr("value", "spark_partition_id() as task").collect()
    assert sorted((row.task, row.value) for row in placed) == list(enumerate(values))
