"""Writes from threads other than the main one, where Spark looks up no Python source for ``df.write``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from lakeformat.spark import LakehouseTable, active_session, last_result, write
from tests.helpers.lakehouse import commits

pytestmark = pytest.mark.spark

THREADS = 8


def active(spark: SparkSession) -> Any:
    """Return the session that Spark would use in this thread, according to the JVM."""
    return spark._jvm.SparkSession.getActiveSession()


@pytest.fixture
def elsewhere() -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of one thread that has never used Spark."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def rows(spark: SparkSession, first: int) -> DataFrame:
    """Return ten rows. (``createDataFrame`` would make its session the active one.)"""
    return spark.range(first, first + 10, 1, 1).selectExpr("id", "id * 2 as x")


@pytest.mark.slow
def test_eight_threads_write_eight_tables_in_every_way(spark: SparkSession, tmp_path: Path) -> None:
    def block(frame: DataFrame, path: str) -> None:
        with active_session(spark):
            frame.write.format("lakehouse").option("recordkey", "id").mode("append").save(path)

    @active_session(spark)
    def decorated(frame: DataFrame, path: str) -> None:
        frame.write.format("lakehouse").option("recordkey", "id").mode("append").save(path)

    def table(frame: DataFrame, path: str) -> None:
        LakehouseTable.forPath(spark, path, recordkey="id").upsert(frame)
        assert LakehouseTable.forPath(spark, path).read(["id"], where="x >= 0", via="native").count() == 10

    def function(frame: DataFrame, path: str) -> None:
        write(frame, path, recordkey="id")

    def work(number: int) -> list[int]:
        path = str(tmp_path / str(number))
        (block, decorated, table, function)[number % 4](rows(spark, number), path)
        assert not active(spark).isDefined()
        return sorted(lakeformat.open(path).to_arrow(["id"])["id"].to_pylist())

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(work, range(THREADS)))
    assert found == [list(range(number, number + 10)) for number in range(THREADS)]


def test_write_function_takes_save_options_and_raises_table_errors(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = write(rows(spark, 0), path, recordkey=("id",), partitionpath=None, operation="insert")
    assert made is not None
    assert (made.operation, made.rows.inserted) == ("insert", 10)
    assert last_result(spark) is made
    skipped = write(rows(spark, 50), path, "ignore", recordkey="id")
    assert skipped is not None
    assert skipped.rows.inserted == 0
    with pytest.raises(lakeformat.InvalidOptionError, match="the save mode is errorifexists"):
        write(rows(spark, 50), path, "errorifexists", recordkey="id")
    write(rows(spark, 90), path, "overwrite", **{"hoodie.combine.before.insert": True})
    assert lakeformat.open(path).to_arrow(["id"])["id"].to_pylist() == list(range(90, 100))
    with pytest.raises(lakeformat.InvalidOptionError, match=r"^unknown option 'recordkye'; did you mean 'recordkey'\?"):
        write(rows(spark, 0), path, recordkye="id")
    with pytest.raises(lakeformat.SchemaMismatchError):
        write(rows(spark, 0).selectExpr("id", "array(x) as x"), path)
    assert len(commits(tmp_path / "t")) == 2


def test_previous_session_is_active_afterwards(
    spark: SparkSession, registered: SparkSession, elsewhere: ThreadPoolExecutor
) -> None:
    def after_a_failure() -> bool:
        with pytest.raises(ZeroDivisionError):
            failing()
        return bool(active(spark).isDefined())

    @active_session(registered)
    def failing() -> None:
        assert active(spark).get().equals(registered._jsparkSession)
        with active_session(spark):
            assert active(spark).get().equals(spark._jsparkSession)
        assert active(spark).get().equals(registered._jsparkSession)
        raise ZeroDivisionError

    assert elsewhere.submit(after_a_failure).result() is False
    with active_session(spark):
        assert after_a_failure() is True
        assert active(spark).get().equals(spark._jsparkSession)
