"""Ordinary filters of a guarded frame skip files. A frame or view sees one snapshot."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, datasource, functions

from lakeformat import InvalidInputError, Table, create
from lakeformat.predicate import Always
from lakeformat.spark import LakehouseTable, register
from lakeformat.spark.pushdown import PUSHDOWN, guarded_frame
from lakeformat.spark.reads.to_predicate import implied_predicate
from lakeformat.spark.source import LakehouseSource
from tests.helpers.lakehouse import parts, read
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.spark

PUSHES = pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="PySpark 4.0 pushes no filters")
ONE_FILE_A_TASK = {"lakeformat.read.split.bytes": "1"}
SCHEMA = a_schema(id="int64", s="string")


def letters(start: int) -> pa.Table:
    """Return ten rows of one letter."""
    return pa.table({"id": range(start, start + 10), "s": ["abcdefgh"[start // 10]] * 10}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Create a table of four files, one for each letter."""
    made = create(str(tmp_path / "t"), SCHEMA, record_key="id", **{"hoodie.parquet.small.file.limit": 0})
    for start in range(0, 40, 10):
        made.bulk_insert(letters(start))
    return made


def path_of(table: Table) -> str:
    """Return the path of the table."""
    return table.context.storage.location


def test_register_changes_the_session_only_on_request(spark: SparkSession) -> None:
    session = spark.newSession()
    before = session.conf.get(PUSHDOWN, "false")
    register(session)
    assert session.conf.get(PUSHDOWN, "false") == before == "false"
    register(session, pushdown=True)
    assert session.conf.get(PUSHDOWN) == "true"


@PUSHES
def test_guarded_frame_reads_the_files_of_every_filter_pushed_so_far(registered: SparkSession, table: Table) -> None:
    frame = guarded_frame(registered, path_of(table), ONE_FILE_A_TASK)
    asked = [("s = 'a'", 1), ("id >= 30", 2), ("s = 'a'", 2), ("true", 4), ("s = 'a'", 4)]
    assert [(text, parts(frame.where(text))) for text, _ in asked] == asked
    anew = guarded_frame(registered, path_of(table), ONE_FILE_A_TASK)
    assert parts(anew.select("id").where("s = 'd' or s = 'zz'").where("id > 35")) == 1
    assert anew.columns == frame.columns == ["_hoodie_commit_time", "_hoodie_commit_seqno", *anew.columns[2:]]


@PUSHES
def test_skipped_files_are_not_opened(registered: SparkSession, table: Table) -> None:
    frame = guarded_frame(registered, path_of(table), {"columns": "id,s"})
    found = frame.where("s = 'd'")
    assert parts(found) >= 1
    newest = max(Path(path_of(table)).glob("*.parquet"), key=lambda file: file.name.rpartition("_")[2])
    for file in Path(path_of(table)).glob("*.parquet"):
        if file != newest:
            file.unlink()
    assert sorted(row.id for row in found.collect()) == list(range(30, 40))
    with pytest.raises(PySparkException, match="parquet"):
        frame.collect()


def test_read_without_pushdown_skips_no_file(spark: SparkSession, registered: SparkSession, table: Table) -> None:
    assert parts(guarded_frame(spark, path_of(table), ONE_FILE_A_TASK).where("s = 'a'")) == 4
    assert parts(read(registered, Path(path_of(table)), **ONE_FILE_A_TASK).where("s = 'a'")) == 4


@PUSHES
def test_where_spark_keeps_plans_by_scan_a_plain_load_skips(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(*filters: Any) -> int:
        relation = LakehouseSource({"path": path_of(table), **ONE_FILE_A_TASK})
        schema = relation.schema()
        reader: Any = copy(relation).reader(schema)  # Spark copies it by pickling.
        list(reader.pushFilters(filters))
        return len(reader.partitions())

    wanted = (datasource.EqualTo(("s",), "b"),)
    assert (planned(), planned(*wanted)) == (4, 4)
    monkeypatch.setattr(datasource.DataSourceReader, "pushLimit", lambda self, limit: False, raising=False)
    assert (planned(), planned(*wanted)) == (4, 1)


@pytest.mark.parametrize("way", ["load", "guarded"])
def test_frame_reads_one_snapshot(way: str, session: SparkSession, table: Table) -> None:
    path = path_of(table)
    frame = guarded_frame(session, path, {}) if way == "guarded" else session.read.format("lakehouse").load(path)
    frame.createOrReplaceTempView("one_snapshot")
    seen = [frame.where("id < 5").count()]
    table.bulk_insert(letters(40))
    seen += [frame.count(), frame.where("s = 'e'").count(), frame.where("s = 'e' or id < 0").count()]
    seen += [row[0] for row in session.sql("select count(*) from one_snapshot").collect()]
    table.delete(where="id < 5")
    seen += [frame.where("id < 5").count(), frame.count(), session.table("one_snapshot").where("s >= 'a'").count()]
    assert seen == [5, 40, 0, 0, 40, 5, 40, 40]
    assert session.read.format("lakehouse").load(path).count() == 45


@pytest.mark.parametrize(("statement", "later"), [("insert into", 42), ("insert overwrite", 2)])
def test_a_view_that_is_written_into_stays_whole(
    statement: str, later: int, session: SparkSession, table: Table
) -> None:
    options = f"path '{path_of(table)}', meta_columns false"
    view = f"create or replace temporary view written using lakehouse options ({options})"
    session.sql(view)
    seen = [session.table("written").where("s = 'a'").count()]
    session.sql(statement + " written values (70, 'h'), (71, 'h')")
    conditions = ("true", "s = 'a'", "s = 'h'", "s = 'a' or s = 'h'")
    seen += [session.table("written").where(text).count() for text in conditions]
    session.sql(view)
    seen += [session.table("written").where(text).count() for text in ("true", "s = 'h'")]
    assert seen == [10, 40, 10, 0, 10, later, 2]


def test_a_commit_that_was_pending_when_the_frame_was_made_stays_out(session: SparkSession, table: Table) -> None:
    """The instant of this commit is older than the newest that the frame knows."""
    timeline = Path(path_of(table)) / ".hoodie"
    newest = sorted(timeline.glob("*.commit"))[-2]
    aside = newest.with_suffix(".aside")
    newest.rename(aside)
    frame = session.read.format("lakehouse").load(path_of(table))
    seen = [frame.where("s = 'c'").count(), frame.count()]
    aside.rename(newest)
    seen += [frame.where("s = 'c'").count(), frame.where("s = 'd'").count(), frame.count()]
    assert seen == [0, 30, 0, 10, 30]
    assert session.read.format("lakehouse").load(path_of(table)).count() == 40


def test_a_frame_of_an_empty_table_stays_empty(session: SparkSession, tmp_path: Path) -> None:
    empty = create(str(tmp_path / "t"), SCHEMA, record_key="id")
    frame = session.read.format("lakehouse").load(path_of(empty))
    assert frame.count() == 0
    empty.bulk_insert(letters(0))
    assert (frame.where("s = 'a'").count(), frame.count()) == (0, 0)


COLUMN = functions.col
#: Condition -> how many of the four files are left.
CONDITIONS: list[tuple[Any, int]] = [
    (lambda: COLUMN("s") == "b", 1),
    (lambda: (COLUMN("id") > 12) & (COLUMN("s") < "d"), 2),
    (lambda: (functions.lit(31) <= COLUMN("id")) | COLUMN("s").isin("a", "b"), 3),
    (lambda: ~(COLUMN("id") >= 20), 2),
    (lambda: COLUMN("s").startswith("c") & (functions.length("s") == 1), 1),
    (lambda: ~((COLUMN("id") >= 20) & (functions.length("s") == 1)), 4),
    (lambda: functions.expr("id between 3 and 8 or s = 'd'"), 2),
    (lambda: COLUMN("id") == "25", 4),
    (lambda: COLUMN("id") + 1 == 5, 4),
    (lambda: COLUMN("s").isNull() | (COLUMN("id") % 10 == 3), 4),
    (lambda: COLUMN("_hoodie_record_key") == "25", 2),  # As text, the key is also between "0" and "9".
]


@pytest.mark.parametrize("at", range(len(CONDITIONS)))
def test_native_reads_takes_a_spark_column(at: int, spark: SparkSession, table: Table) -> None:
    make, files = CONDITIONS[at]
    ours = LakehouseTable.forPath(spark, path_of(table))
    frame = ours.read(["id"], where=make(), via="native")
    judged = ours.read(meta_columns=True, via="native").where(make()).select("id")
    assert sorted(frame.collect()) == sorted(judged.collect())
    assert frame.columns == ["id"]
    assert len(ours.read(where=make(), via="native").inputFiles()) == files


@pytest.mark.parametrize(("where", "name"), [(pc.field("id") > 5, "Expression"), (5, "type int"), ([], "type list")])
def test_native_read_refuses_unsupported_conditions_by_name(
    where: Any, name: str, spark: SparkSession, table: Table
) -> None:
    with pytest.raises(InvalidInputError, match=name):
        LakehouseTable.forPath(spark, path_of(table)).read(where=where, via="native")


def test_spark_connect_columns_convert_like_classic_columns(spark: SparkSession) -> None:
    connect = pytest.importorskip("pyspark.sql.connect.functions")

    def conditions(f: Any) -> list[Any]:
        """Return the same conditions, built from the functions of either module."""
        number, text = f.col("id"), f.col("s")
        return [
            (number > 5) & (text == "b") & (f.length(text) > 3),
            ~(number <= 7) | text.isin("a", "b"),
            text.isNull() | text.isNotNull() | number.eqNullSafe(4) | (number != 3),
            text.startswith("a") & text.endswith("b") & text.contains("c") & (f.lit(3) < number),
            f.expr("id between 3 and 8"),
            number == f.lit("5"),
            f.col("s") > f.current_date(),
        ]

    assert spark.version
    ours, theirs = conditions(functions), conditions(connect)
    understood = [implied_predicate(column, SCHEMA) for column in ours]
    assert [implied_predicate(column, SCHEMA) for column in theirs] == understood
    assert [column == Always(True) for column in understood] == [False] * 5 + [True] * 2


@PUSHES
def test_spark_still_needs_the_guard(registered: SparkSession) -> None:
    """If this fails, a release of Spark keeps a plan for each scan: then the guard is for older releases only."""

    class Numbers(datasource.DataSourceReader):
        """One task a number, or only that of the pushed one."""

        def __init__(self) -> None:
            self.numbers = [1, 2]

        def pushFilters(self, filters: list[Any]) -> Any:  # noqa: N802
            for each in filters:
                if type(each).__name__ == "EqualTo":
                    self.numbers = [each.value]
            return filters

        def partitions(self) -> list[Any]:
            return [datasource.InputPartition(number) for number in self.numbers]

        def read(self, partition: Any) -> Any:
            return iter([(partition.value,)])

    class Source(datasource.DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers_by_task"

        def schema(self) -> str:
            return "number int"

        def reader(self, schema: Any) -> datasource.DataSourceReader:
            return Numbers()

    registered.dataSource.register(Source)
    frame = registered.read.format("numbers_by_task").load()
    assert frame.where("number = 1").count() == 1
    assert frame.count() == 1, "Spark has mended its defect"
