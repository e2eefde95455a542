"""Batches of a stream by ``foreachBatch``: a batch that Spark replays is in the table once. Validators under Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from tests.helpers.lakehouse import FLIGHT_COLUMNS, commits, contents, flights, leftovers, refusal, write

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param("upsert", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("insert", "bulk_insert")),
    ],
)
def test_a_replayed_batch_of_a_stream_is_written_once(spark: SparkSession, tmp_path: Path, operation: str) -> None:
    source, target = tmp_path / "source", tmp_path / "table"
    for number in range(3):
        rows = [(number * 10 + at, f"p{at % 2}", 1, 0.5) for at in range(10)]
        flights(spark, rows, tasks=1).write.mode("append").parquet(str(source))
    tried: list[int] = []

    def save(batch: DataFrame, batch_id: int) -> None:
        tried.append(batch_id)
        named = {"lakeformat.batch.app": "flights", "lakeformat.batch.id": batch_id}
        write(batch, target, operation=operation, **named)
        if tried.count(batch_id) == 1 and batch_id == 1:
            raise RuntimeError("lost after the commit, before the checkpoint")

    def run() -> None:
        stream = spark.readStream.schema(FLIGHT_COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))
        writer = stream.writeStream.foreachBatch(save).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    with pytest.raises(PySparkException):
        run()
    run()
    assert tried == [0, 1, 1, 2]
    assert [row[0] for row in contents(spark, target)] == list(range(30))
    assert len(commits(target)) == 3
    assert leftovers(target) == []


NO_NEGATIVES = {
    "hoodie.precommit.validators": "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator",
    "hoodie.precommit.validators.single.value.sql.queries": "select count(*) from <TABLE_NAME> where x < 0#0",
}


@pytest.mark.parametrize(
    "operation", ["upsert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("insert", "bulk_insert"))]
)
def test_validator_refuses_a_save_before_readers_see_it(spark: SparkSession, tmp_path: Path, operation: str) -> None:
    good, bad = [(n, "p0", 1, 0.5) for n in range(5)], [(9, "p1", 1, -1.0)]
    write(flights(spark, good), tmp_path, operation=operation, **NO_NEGATIVES)
    refused = refusal(lambda: write(flights(spark, bad), tmp_path, operation=operation, **NO_NEGATIVES))
    assert refused.error == "ValidationFailedError"
    assert "found 1, wanted 0" in refused.text
    assert contents(spark, tmp_path) == good
    assert len(commits(tmp_path)) == 1
    assert len(lakeformat.open(tmp_path).history()) == 1


def test_a_query_outside_the_subset_is_refused_before_the_first_task(spark: SparkSession, tmp_path: Path) -> None:
    queries = {**NO_NEGATIVES, "hoodie.precommit.validators.single.value.sql.queries": "select x from <TABLE_NAME>#0"}
    refused = refusal(lambda: write(flights(spark, [(1, "p", 1, 0.5)]), tmp_path, **queries))
    assert refused.error == "InvalidOptionError"
    assert "x is not in the subset" in refused.text
    assert not (tmp_path / ".hoodie").exists()
