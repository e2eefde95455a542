"""``df.write.format("lakehouse")….save(path)`` of a registered process: rows, modes, threads, errors, the result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from lakeformat.spark import last_result, register, unregister
from lakeformat.spark.writes.merge_place import touched_bytes
from lakeformat.write.intake import plan_job
from lakeformat.write.rows.stage import Run, StagedTask
from tests.helpers.delta_reader import assert_delta_shows
from tests.helpers.iceberg_reader import assert_iceberg_shows
from tests.helpers.lakehouse import FLIGHT_COLUMNS, FLIGHTS, commits, run_application

pytestmark = pytest.mark.spark

Row = tuple[int, str, int, float]
MERGE = "lakeformat.write.merge"
OLD: list[Row] = [(key, "abc"[key % 3], 1, float(key)) for key in range(12)]
NEW: list[Row] = [(key, "abc"[key % 3], 2, -float(key)) for key in range(6, 15)]
SOME = pa.table({"id": [1, 2, 3], "part": ["a", "a", "b"], "x": [1.0, 2.0, 3.0]})
OPERATION = "hoodie.datasource.write.operation"


@pytest.fixture
def verbs(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a session whose ``save`` is wrapped. Afterwards put PySpark's own method back."""
    session = spark.newSession()
    register(session)
    yield session
    unregister()


def frame(session: SparkSession, rows: list[Row]) -> DataFrame:
    return session.createDataFrame(rows, FLIGHT_COLUMNS).repartition(2)


def save(rows: DataFrame, path: Path, mode: str = "append", **options: Any) -> None:
    rows.write.format("lakehouse").options(**FLIGHTS, **options).mode(mode).save(str(path))


def stored(path: Path) -> list[Row]:
    names = ["id", "part", "ts", "x"]
    return sorted(tuple(row.values()) for row in lakeformat.open(path).to_arrow(names).to_pylist())


def model(operation: str) -> list[Row]:
    """Return the rows of `OLD` after the operation with `NEW`, by a dict of keys."""
    rows = {row[0]: row for row in OLD}
    if operation == "upsert":
        rows |= {row[0]: row for row in NEW}
    elif operation == "delete":
        rows = {key: row for key, row in rows.items() if key not in {row[0] for row in NEW}}
    elif operation in {"insert_overwrite", "insert_overwrite_table"}:  # `NEW` has rows of every partition.
        rows = {row[0]: row for row in NEW}
    elif operation == "delete_partition":
        rows = {key: row for key, row in rows.items() if row[1] != "a"}
    else:
        return sorted([*OLD, *NEW])
    return sorted(rows.values())


OPERATIONS = (
    ("upsert", {}),
    ("insert", {}),
    ("bulk_insert", {}),
    ("bulk_insert", {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}),
    ("delete", {}),
    ("insert_overwrite", {}),
    ("insert_overwrite_table", {}),
    ("delete_partition", {"hoodie.datasource.write.partitions.to.delete": "a"}),
    ("upsert", {"hoodie.index.type": "GLOBAL_SIMPLE"}),
)
#: The operations that the quick tests have.
QUICK = ("upsert", "delete", "insert_overwrite")


@pytest.mark.parametrize(
    ("operation", "more"),
    [pytest.param(*each, marks=() if each[0] in QUICK else pytest.mark.slow) for each in OPERATIONS],
)
def test_each_operation_gives_the_rows_of_the_data_source_and_of_a_dict(
    operation: str, more: dict[str, str], spark: SparkSession, verbs: SparkSession, tmp_path: Path
) -> None:
    for name in ("driver", "executors"):
        path, options = tmp_path / name, {MERGE: name, **more}
        save(frame(verbs, OLD), path)
        save(frame(verbs, NEW), path, **{OPERATION: operation}, **options)
        result = last_result(verbs)
        assert stored(path) == model(operation), name
        assert result is not None
        assert (result.operation, result.instant_time) == (operation, lakeformat.open(path).history()[0].instant_time)
        assert not (path / ".hoodie" / ".lakeformat" / "stage").exists() or not any(
            (path / ".hoodie" / ".lakeformat" / "stage").iterdir()
        )
    unregister()
    save(frame(spark, OLD), tmp_path / "source")
    save(frame(spark, NEW), tmp_path / "source", **{OPERATION: operation}, **more)
    assert stored(tmp_path / "source") == model(operation)


def test_auto_merges_by_executors_above_a_bound(
    verbs: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lakeformat.spark")
    save(frame(verbs, OLD), tmp_path / "t")
    assert "this process merges the rows: 0 MB of rows and 0 MB of files are within" in caplog.text
    caplog.clear()
    save(frame(verbs, NEW), tmp_path / "t", **{f"{MERGE}.bytes": 1})
    assert "executors merge the rows: 0 MB of rows and 0 MB of files are above 0 MB" in caplog.text
    assert stored(tmp_path / "t") == model("upsert")


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, False),
        ({"hoodie.datasource.insert.dup.policy": "drop"}, True),
        ({"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}, True),
    ],
    ids=["no look-up", "policy", "buckets"],
)
def test_auto_counts_the_files_in_which_an_insert_looks_or_writes(
    options: dict[str, Any], counts: bool, tmp_path: Path
) -> None:
    table = lakeformat.create(tmp_path / "t", SOME, record_key="id", partition_by="part", insert=True, **options)
    snapshot = table.snapshot()
    inserting = table.options.with_values(**{OPERATION: "insert"})
    job = plan_job(table.context.store, snapshot, inserting, SOME.schema, table.context.ids)
    staged = [StagedTask("", (Run("a", 0, 1, 1),), 1)]
    size = sum(file.size_bytes for file in snapshot.files if file.partition_path == "a")
    assert touched_bytes(job, staged, snapshot) == (size if counts else 0)


#: The data source's side of a ``save`` without `register`: Spark calls `write` in tasks, and `commit` in one process.
UNREGISTERED = """
import logging, sys
import pyarrow as pa
from pyspark.sql.types import StructType
from lakeformat.spark.writes.writer import make_writer
logging.basicConfig(level="INFO")
for number in range(2):
    writer = make_writer({"path": sys.argv[1], "recordkey": "id"}, StructType().add("id", "long"), False)
    writer.commit([writer.write(iter([pa.record_batch({"id": [number]})]))])
"""


def test_the_data_source_names_register_once_in_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNREGISTERED, str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr.count("after lakeformat.spark.register(spark), executors merge large saves") == 1
    assert lakeformat.open(tmp_path / "t").count() == 2


def test_modes_do_what_spark_promises(verbs: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = frame(verbs, OLD).write.format("lakehouse").options(**FLIGHTS)
    writer.save(str(path))  # Spark's default mode, errorifexists.
    with pytest.raises(lakeformat.InvalidOptionError, match=r"^a table is at \S+ already, and the save mode is error"):
        frame(verbs, NEW).write.format("lakehouse").options(**FLIGHTS).save(str(path))
    save(frame(verbs, NEW), path, "ignore")
    skipped = last_result(verbs)
    assert skipped is not None
    assert skipped.skipped == "the table exists already, and the save mode is ignore"
    assert stored(path) == OLD
    assert len(commits(path)) == 1
    frame(verbs, NEW).write.save(str(path), "lakehouse", "overwrite")
    assert stored(path) == NEW
    save(frame(verbs, OLD), tmp_path / "new", "ignore")
    assert stored(tmp_path / "new") == OLD


def test_partition_by_names_the_partition_columns(verbs: SparkSession, tmp_path: Path) -> None:
    path, keys = tmp_path / "t", {"recordkey": "id", "ordering": "ts"}
    frame(verbs, OLD).write.format("lakehouse").options(**keys).partitionBy("PART").mode("append").save(str(path))
    assert sorted(each.name for each in path.iterdir() if each.is_dir() and each.name != ".hoodie") == ["a", "b", "c"]
    frame(verbs, NEW).write.save(
        str(path), format="lakehouse", mode="append", partitionBy=["part"], partitionpath="part"
    )
    assert stored(path) == model("upsert")
    writer = frame(verbs, NEW).write.format("lakehouse").partitionBy("ts").mode("append")
    with pytest.raises(lakeformat.InvalidOptionError, match=r"partitionpath\.field"):
        writer.save(str(path))
    with pytest.raises(lakeformat.InvalidOptionError, match=r"^partitionBy\(ts\) and partitionpath=part contradict "):
        writer.option("partitionpath", "part").save(str(path))
    assert stored(path) == model("upsert")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (
            lambda writer: writer.bucketBy(2, "id"),
            "bucketBy() is not for format('lakehouse'): buckets are an index: ",
        ),
        (
            lambda writer: writer.sortBy("id"),
            "sortBy() is not for format('lakehouse'): rows are sorted by ",
        ),
        (
            lambda writer: writer.clusterBy("id"),
            "clusterBy() is not for format('lakehouse'): rows are sorted by ",
        ),
        (lambda writer: writer.option("recordkye", "id"), "unknown option 'recordkye'; did you mean 'recordkey'?"),
        (lambda writer: writer.option("path", "/elsewhere"), "save("),
    ],
)
def test_refused_save_raises_one_line_and_makes_no_table(
    said: Callable[[Any], Any], text: str, verbs: SparkSession, tmp_path: Path
) -> None:
    writer = said(frame(verbs, OLD).write.format("lakehouse").option("recordkey", "id").mode("append"))
    with pytest.raises(lakeformat.InvalidOptionError) as refused:
        writer.save(str(tmp_path / "t"))
    assert str(refused.value).startswith(text)
    assert "\n" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("merge", ["driver", "executors"])
def test_error_of_a_task_is_ours_and_leaves_the_table_as_before(
    merge: str, verbs: SparkSession, tmp_path: Path
) -> None:
    save(frame(verbs, OLD), tmp_path / "t")
    keyless = frame(verbs, NEW).selectExpr("if(id = 7, null, id) as id", "part", "ts", "x")
    with pytest.raises(lakeformat.LakeformatError, match="id") as refused:
        save(keyless, tmp_path / "t", **{MERGE: merge})
    assert "\n" not in str(refused.value)
    assert stored(tmp_path / "t") == OLD
    save(frame(verbs, NEW), tmp_path / "t", **{MERGE: merge})
    assert stored(tmp_path / "t") == model("upsert")


@pytest.mark.parametrize("merge", ["driver", "executors"])
def test_four_threads_save_to_one_table_at_once(merge: str, verbs: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    save(frame(verbs, OLD), path)
    frames = [frame(verbs, [(key, "abc"[key % 3], 2 + of, 0.5) for key in range(of, 12, 2)]) for of in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda rows: save(rows, path, **{MERGE: merge}), frames))
    assert [row[2] for row in stored(path)] == [2, 3] + [2 + 2 + key % 2 for key in range(2, 12)]
    assert len(commits(path)) == 5


@pytest.mark.parametrize("merge", ["driver", "executors"])
def test_foreach_batch_saves_each_batch_once(merge: str, verbs: SparkSession, tmp_path: Path) -> None:
    found = []

    def batch(rows: DataFrame, number: int) -> None:
        for _ in range(2):  # Spark may give a batch twice.
            named = {"lakeformat.batch.app": "test", "lakeformat.batch.id": number}
            save(rows, tmp_path / "t", **named, **{MERGE: merge})
            found.append(last_result(rows.sparkSession))

    frame(verbs, OLD).write.parquet(str(tmp_path / "source"))
    stream = verbs.readStream.schema(FLIGHT_COLUMNS).parquet(str(tmp_path / "source")).writeStream
    query = stream.foreachBatch(batch).trigger(availableNow=True).start()
    query.awaitTermination()
    assert stored(tmp_path / "t") == OLD
    assert [bool(result and result.skipped) for result in found] == [False, True]


def test_other_formats_and_results_of_other_sessions_are_untouched(verbs: SparkSession, tmp_path: Path) -> None:
    save(frame(verbs, OLD), tmp_path / "t")
    other = verbs.newSession()
    frame(other, NEW).write.partitionBy("part").mode("overwrite").parquet(str(tmp_path / "parquet"))
    frame(other, NEW).write.save(str(tmp_path / "json"), "json")
    assert sorted(tuple(row) for row in other.read.schema(FLIGHT_COLUMNS).json(str(tmp_path / "json")).collect()) == NEW
    assert last_result(other) is None
    assert last_result(verbs) is not None


def test_save_as_table_is_refused_before_rows_are_written(verbs: SparkSession, tmp_path: Path) -> None:
    writer = frame(verbs, OLD).write.option("path", str(tmp_path / "t")).option("recordkey", "id")
    with pytest.raises(lakeformat.UnsupportedTableError, match=r"^saveAsTable\('never'\) is not for format") as refused:
        writer.saveAsTable("never", "lakehouse", "append")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "t").exists()
    assert "never" not in [each.name for each in verbs.catalog.listTables()]
    frame(verbs, OLD).write.option("path", str(tmp_path / "p")).saveAsTable("as_parquet", "parquet")
    assert verbs.table("as_parquet").count() == len(OLD)
    verbs.sql("drop table as_parquet")


@pytest.mark.slow
def test_save_of_a_connect_session(tmp_path: Path) -> None:
    """Run in another process, because a process has either classic Spark or Spark Connect."""
    script = f"""
from pyspark.sql import SparkSession
import lakeformat
from lakeformat.spark import last_result, register
spark = SparkSession.builder.remote("local[2]").getOrCreate()
register(spark)
rows = spark.range(0, 10, 1, 2).selectExpr("id", "cast(id % 2 as string) as part", "1 as ts")
path = {str(tmp_path / "t")!r}
writer = rows.write.format("lakehouse").option("recordkey", "id").option("ordering", "ts").partitionBy("part")
writer.save(path)
assert last_result(spark).rows.inserted == 10
for merge in ("driver", "executors"):
    rows.write.format("lakehouse").mode("append").option("lakeformat.write.merge", merge).save(path)
    assert last_result(spark).rows.updated == 10, merge
try:
    writer.save(path)
except lakeformat.InvalidOptionError as error:
    assert "errorifexists" in str(error)
else:
    raise AssertionError
assert sorted(lakeformat.open(path).to_arrow(["id"])["id"].to_pylist()) == list(range(10))
"""
    run_application(script, cwd=tmp_path)


def test_formats_beside_the_table_follow_a_save(verbs: SparkSession, tmp_path: Path) -> None:
    beside = {"lakeformat.beside": "delta,iceberg"}
    save(frame(verbs, OLD), tmp_path / "t", **beside)
    save(frame(verbs, NEW), tmp_path / "t", **beside, **{OPERATION: "upsert"})
    table = lakeformat.open(tmp_path / "t")
    assert stored(tmp_path / "t") == model("upsert")
    assert_delta_shows(table)
    assert_iceberg_shows(table)
