"""`LakehouseTable.cluster` and related methods: the same rows as before although tasks fail, and narrow files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.errors import SchemaMismatchError
from lakeformat.file_system_view.context import TableContext
from lakeformat.services.cluster.run import ClusterSession, make_cluster_request
from lakeformat.spark import LakehouseTable
from lakeformat.spark.services import SparkRewriter
from lakeformat.storage import LocalStorage
from tests.helpers import clustered, hudi_rs
from tests.helpers.lakehouse import Rows, flights, leftovers

pytestmark = pytest.mark.spark

STORED: Rows = [(n, f"p{n % 2}", n % 10, (n * 7919) % 400 / 2) for n in range(400)]
OPTIONS = {"recordkey": "id", "partitionpath": "part", "ordering": "ts", "hoodie.parquet.small.file.limit": "0"}


def table_at(spark: SparkSession, path: Path, **options: Any) -> LakehouseTable:
    return LakehouseTable.forPath(spark, str(path), **{**OPTIONS, **options})


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> Path:
    """Create a table of `STORED` with two files in each partition."""
    table = table_at(spark, tmp_path / "t")
    table.insert(flights(spark, STORED[:200]))
    table.insert(flights(spark, STORED[200:]))
    return tmp_path / "t"


def read_rows(path: Path) -> str:
    """Return the rows with their meta columns except the file name. Check that hudi-rs reads the same."""
    assert leftovers(path) == []
    rows = hudi_rs.assert_same_rows(lakeformat.open(path))
    return repr([{name: value for name, value in row.items() if name != "_hoodie_file_name"} for row in rows])


def widths(path: Path) -> list[float]:
    """Return the width of the range of x in each file."""
    table = lakeformat.open(path)
    found = []
    for file in table.snapshot().files:
        values = table.to_arrow(columns=["x"], where=f"_hoodie_file_name = '{file.name}'").column("x").to_pylist()
        found.append(max(values) - min(values))
    return found


@pytest.mark.parametrize(
    ("curve", "task_bytes"),
    [
        pytest.param("linear", 1, id="linear, divided", marks=pytest.mark.nightly),
        pytest.param("hilbert", 1 << 30, id="hilbert, a task a group", marks=pytest.mark.slow),
        pytest.param("linear", 1 << 30, id="linear, a task a group", marks=pytest.mark.nightly),
        pytest.param("hilbert", 1, id="hilbert, divided", marks=pytest.mark.nightly),
    ],
)
def test_clustering_by_tasks_changes_no_row(curve: str, task_bytes: int, spark: SparkSession, path: Path) -> None:
    before = read_rows(path)
    table = table_at(spark, path)
    session = ClusterSession(table.context, table.options, SparkRewriter(spark, task_bytes=task_bytes))
    result = session.cluster(make_cluster_request(table.options, ["x", "ts"], curve, target_file_bytes=2000))
    assert result.report["rows"] == {"rewritten": len(STORED)}
    assert read_rows(path) == before
    assert len(widths(path)) >= 4
    if curve == "linear":
        assert max(widths(path)) < 110
    changes = [(n, part, ts + 10, -1.0) for n, part, ts, _ in STORED[::3]]
    assert table.upsert(flights(spark, changes)).report["rows"]["updated"] == len(changes)
    assert lakeformat.open(path).to_arrow(where="x = -1").num_rows == len(changes)


@pytest.mark.parametrize("version", [6, 9])
def test_log_files_are_laid_out_with_their_base_files(version: int, spark: SparkSession, tmp_path: Path) -> None:
    options = {"hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.write.table.version": str(version)}
    table = table_at(spark, tmp_path / "t", **options)
    table.insert(flights(spark, STORED))
    table.upsert(flights(spark, [(n, part, ts + 10, x + 1) for n, part, ts, x in STORED[::9]]))
    plain = lakeformat.open(tmp_path / "t")
    before = clustered.all_rows(plain)
    assert plain.snapshot().live.has_logs
    session = ClusterSession(table.context, table.options, SparkRewriter(spark, task_bytes=1))
    session.cluster(make_cluster_request(table.options, ["x"], "linear", target_file_bytes=2000))
    assert not plain.snapshot().live.has_logs
    assert clustered.all_rows(plain) == clustered.all_rows_by_hudi_rs(plain) == before
    assert max(widths(tmp_path / "t")) < 110


class Failing(LocalStorage):
    """A storage in which the first attempt of every task dies with its file half written."""

    def open_output(self, path: str) -> Any:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            Path(self.root, path).parent.mkdir(parents=True, exist_ok=True)
            Path(self.root, path).write_bytes(b"half a file")
            raise OSError("the executor is lost")
        return super().open_output(path)


@pytest.mark.parametrize(
    "task_bytes",
    [pytest.param(1 << 30, id="a task a group"), pytest.param(1, id="divided", marks=pytest.mark.slow)],
)
def test_failed_attempts_leave_no_file(task_bytes: int, spark: SparkSession, path: Path) -> None:
    import sys

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers do not find the tests.
    try:
        before = read_rows(path)
        table = table_at(spark, path)
        context = TableContext(Failing(str(path)), table.context.clock, table.context.ids, True)
        session = ClusterSession(context, table.options, SparkRewriter(spark, task_bytes=task_bytes))
        session.cluster(make_cluster_request(table.options, ["x", "ts"], "z-order", target_file_bytes=2000))
        assert read_rows(path) == before
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_local_master_clusters_without_a_spark_job(spark: SparkSession, path: Path) -> None:
    before = read_rows(path)
    context = spark.sparkContext
    context.setJobGroup("clustering", "")
    try:
        assert table_at(spark, path).cluster(["x", "ts"]).report["rows"] == {"rewritten": len(STORED)}
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert context.statusTracker().getJobIdsForGroup("clustering") == []
    assert read_rows(path) == before


def test_plan_is_run_by_tasks_and_a_bad_plan_is_refused(spark: SparkSession, path: Path) -> None:
    before = read_rows(path)
    table = table_at(spark, path)
    planned = table.schedule_clustering("x", partitions="p1")
    assert planned is not None
    assert lakeformat.open(path).snapshot().timeline.pending[0].time == planned
    assert table.run_clustering().instant_time == planned
    assert table.run_clustering().skipped
    cancelled = table.schedule_clustering("x")
    assert cancelled is not None
    table.cancel_clustering(cancelled)
    with pytest.raises(SchemaMismatchError, match="'nope'"):
        table.cluster("nope")
    assert read_rows(path) == before


@pytest.mark.slow
def test_inline_clustering_runs_after_staged_and_shuffled_writes(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    inline = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}
    result = table_at(spark, path, **inline).insert(flights(spark, STORED[:40]))
    assert "clustering" in result.report["services"]
    flights(spark, STORED[40:80]).write.format("lakehouse").options(**OPTIONS, **inline).mode("append").save(str(path))
    table = lakeformat.open(path)
    assert [entry.operation for entry in table.history()][:2] == ["cluster", "upsert"]
    assert len(table.snapshot().files) == 2  # One file in each partition.
    assert read_rows(path).count("_hoodie_record_key") == 80
    options = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 1}  # For one write alone.
    result = table_at(spark, path).write(flights(spark, STORED[:1]), "upsert", options=options)
    assert "clustering" in result.report["services"]
