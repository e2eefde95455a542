"""`LakehouseTable.compact` and related methods: tasks make the base files, and the first attempt of each may die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.file_system_view.context import TableContext
from lakeformat.services.compact.run import CompactSession
from lakeformat.spark import LakehouseTable
from lakeformat.spark.services import SparkCompactor
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.fixture_tables import unpack

pytestmark = pytest.mark.spark


def read_rows(path: Path) -> str:
    """Return the rows with their meta columns except the file name. Check that hudi-rs reads the same."""
    rows = hudi_rs.assert_same_rows(lakeformat.open(path))
    return repr([{name: value for name, value in row.items() if name != "_hoodie_file_name"} for row in rows])


class Failing(LocalStorage):
    """A storage in which the first attempt of every task dies with its file half written."""

    def open_output(self, path: str) -> Any:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            self.create(path, b"half")
            raise RuntimeError("the first attempt dies")
        return super().open_output(path)


@pytest.mark.parametrize(
    ("name", "groups"), [("hudi_mor_v6/mor6_partitioned_deletes", 2), ("hudi_v8_v9/v9_mor_compacted_partitioned", 2)]
)
def test_compaction_by_tasks_changes_no_row(name: str, groups: int, spark: SparkSession, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    before = read_rows(path)
    table = LakehouseTable.forPath(spark, str(path))
    cloudpickle.register_pickle_by_value(__import__(__name__))
    try:
        context = TableContext(Failing(str(path)), table.context.clock, table.context.ids, True)
        result = CompactSession(context, table.options, SparkCompactor(spark)).run(plans=True)
    finally:
        cloudpickle.unregister_pickle_by_value(__import__(__name__))
    assert result.report["files"]["merged"] == groups
    assert read_rows(path) == before
    assert not lakeformat.open(path).snapshot().live.has_logs
    assert not list((path / ".hoodie" / ".lakeformat" / "stage").glob("*"))


def test_lakehouse_table_compaction_methods_work(spark: SparkSession, tmp_path: Path) -> None:
    path = unpack("hudi_mor_v6/mor6_partitioned_deletes", tmp_path)
    before = read_rows(path)
    table = LakehouseTable.forPath(spark, str(path))
    planned = table.schedule_compaction()
    assert planned is not None
    table.cancel_compaction(planned)
    planned = table.schedule_compaction()
    assert table.run_compaction(planned).instant_time == planned
    assert table.compact().skipped == "no file slice is to be compacted"
    assert spark.read.format("lakehouse").load(str(path)).count() == lakeformat.open(path).to_arrow().num_rows
    assert read_rows(path) == before
