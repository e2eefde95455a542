"""Bad rows put aside by Spark: every way to write finds the same rows as plain Python, and streams add them once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat
import lakeformat.spark
from lakeformat.spark import LakehouseTable

pytestmark = pytest.mark.spark

#: Every tenth row has no key, every seventh a folder outside of the table.
INPUT = [(None if n % 10 == 0 else f"k{n}", "../y" if n % 7 == 0 else "xz"[n % 2], n) for n in range(60)]
COLUMNS = "id string, p string, n int"
OPTIONS = {"recordkey": "id", "partitionpath": "p", "bad_rows": "aside"}
BUCKETS = {"table_type": "MERGE_ON_READ", "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
Row = tuple[str | None, str, int]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    registered = spark.newSession()
    lakeformat.spark.register(registered)
    yield registered
    lakeformat.spark.unregister()


def frame(session: SparkSession) -> DataFrame:
    return session.createDataFrame(INPUT, COLUMNS).repartition(3)


def in_plain_python(path: Path) -> tuple[list[Any], Counter[str]]:
    """Return the rows and the bad rows that a write in plain Python leaves."""
    columns = [list(column) for column in zip(*INPUT, strict=True)]
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int32())])
    table = lakeformat.create(path, schema, record_key="id", partition_by="p", bad_rows="aside")
    table.upsert(pa.table(columns, schema=schema))
    return left_in(path)


def left_in(path: Path) -> tuple[list[Any], Counter[str]]:
    table = lakeformat.open(path)
    aside = table.bad_rows(["reason", "row_json"]).to_pylist()
    rows = sorted(tuple(row.values()) for row in table.to_arrow(["id", "p", "n"]).to_pylist())
    return rows, Counter(f"{row['reason']} {json.loads(row['row_json'])['n']}" for row in aside)


def save(operation: str, **options: str) -> Callable[[DataFrame, Path], Any]:
    given = {**OPTIONS, "operation": operation, **options}
    return lambda rows, path: rows.write.format("lakehouse").options(**given).mode("append").save(str(path))


def verb(name: str) -> Callable[[DataFrame, Path], Any]:
    return lambda rows, path: getattr(LakehouseTable.forPath(rows.sparkSession, path, **OPTIONS), name)(rows)


WRITES: dict[str, Callable[[DataFrame, Path], Any]] = {
    "save upsert in the driver": save("upsert", **{"lakeformat.write.merge": "driver"}),
    "save upsert by executors": save("upsert", **{"lakeformat.write.merge": "executors"}),
    "save bulk_insert": save("bulk_insert"),
    "save sorted": save("bulk_insert", **{"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}),
    "save to buckets": save("upsert", **BUCKETS),
    "upsert": verb("upsert"),
    "bulk_insert": verb("bulk_insert"),
    "overwrite": verb("overwrite"),
}


#: The others run less often.
OFTEN = {"save upsert by executors", "save to buckets", "upsert", "bulk_insert"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in WRITES]
)
def test_every_write_puts_the_same_rows_aside_as_plain_python(name: str, session: SparkSession, tmp_path: Path) -> None:
    WRITES[name](frame(session), tmp_path / "t")
    assert left_in(tmp_path / "t") == in_plain_python(tmp_path / "plain")
    assert not list((tmp_path / "t/.hoodie/.lakeformat").glob("stage/*"))
    entry = lakeformat.open(tmp_path / "t").history()[0]
    assert entry.report is not None
    assert entry.report["rows"]["set_aside"] == sum(left_in(tmp_path / "t")[1].values())


def test_data_source_of_a_session_that_is_not_registered_puts_rows_aside(spark: SparkSession, tmp_path: Path) -> None:
    save("upsert")(frame(spark), tmp_path / "t")
    assert left_in(tmp_path / "t") == in_plain_python(tmp_path / "plain")


def test_duplicates_and_rows_of_merges_are_put_aside(session: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    verb("upsert")(frame(session), path)
    rows = session.createDataFrame([("k1", "z", 5), ("new", "z", 1), ("new", "z", 2), (None, "z", 3)], COLUMNS)
    table = LakehouseTable.forPath(session, path, dup_policy="fail", **OPTIONS)
    result = table.insert(rows)
    assert (result.rows.inserted, result.rows.set_aside) == (1, 3)
    merged = table.merge(rows).when_matched_update().when_not_matched_insert().execute()
    assert (merged.rows.updated, merged.rows.inserted, merged.rows.set_aside) == (1, 0, 3)
    found = Counter(table.bad_rows(["operation", "reason"], where="operation <> 'upsert'")["reason"].to_pylist())
    assert found == {"stored_key": 1, "repeated_key": 3, "no_key": 2}


def test_sql_puts_rows_of_inserts_and_merges_aside(session: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    lakeformat.spark.sql(
        session,
        f"create table t ({COLUMNS}) using lakehouse partitioned by (p) "
        f"tblproperties (primaryKey = 'id', 'lakeformat.write.bad_rows' = 'aside') location '{path}'",
    )
    session.createDataFrame([("a", "x", 1), ("b", "x", 2)], COLUMNS).createOrReplaceTempView("first")
    lakeformat.spark.sql(session, "insert into t select * from first")
    rows = session.createDataFrame([("a", "x", 7), (None, "x", 8), ("c", "\x01", 9), ("d", "x", 10)], COLUMNS)
    rows.createOrReplaceTempView("more")
    lakeformat.spark.sql(session, "insert into t select * from more where n = 8 or n = 10")
    lakeformat.spark.sql(
        session,
        "merge into t using more s on t.id = s.id and t.p = s.p "
        "when matched then update set n = s.n when not matched then insert *",
    )
    assert left_in(path)[0] == [("a", "x", 7), ("b", "x", 2), ("d", "x", 10)]
    assert left_in(path)[1] == {"no_key 8": 2, "unusable_partition 9": 1}


def test_stream_adds_the_bad_rows_of_a_batch_once(session: SparkSession, tmp_path: Path) -> None:
    path, source = tmp_path / "t", tmp_path / "source"
    frame(session).write.parquet(str(source))
    stream = session.readStream.schema(COLUMNS).parquet(str(source))
    for checkpoint in ("one", "one"):
        query = (
            stream.writeStream.format("lakehouse")
            .options(**OPTIONS, checkpointLocation=str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start(str(path))
        )
        query.awaitTermination()
    assert left_in(path) == in_plain_python(tmp_path / "plain")
    save_batch = lakeformat.spark.each_batch(str(path), app="again", **OPTIONS)
    for number in (1, 1):
        save_batch(frame(session), number)
    assert sum(left_in(path)[1].values()) == 2 * sum(in_plain_python(tmp_path / "more")[1].values())
