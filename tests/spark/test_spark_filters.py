"""Pushed filters change what is read, never the result. Spark without pushdown is the oracle."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, datasource, functions

from lakeformat.spark.pushdown import guarded_frame
from lakeformat.spark.source import LakehouseSource
from tests.helpers.lakehouse import parts, read, write
from tests.helpers.pushed_filters import CONDITIONS, NAN, PRUNED, UTC, arrow_rows
from tests.helpers.spark_answers import answers, selected
from tests.helpers.tables import a_table

pytestmark = pytest.mark.spark

ONE_FILE_A_TASK = {"lakeformat.read.split.bytes": "1"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a table of the rows, with one file for each partition."""
    path = tmp_path_factory.mktemp("filters") / "t"
    a_table(path, rows=arrow_rows(), partition_by="part", operation="bulk_insert")
    return path


@pytest.fixture(scope="module")
def judged() -> dict[str, list[int]]:
    """Return condition -> ids of the rows that Spark selects of rows without a table, by its record."""
    return {text: selected(answer) for text, answer in answers("pushed_filters").items()}


@pytest.mark.slow
def test_pushed_conditions_select_the_same_rows(
    registered: SparkSession, table: Path, judged: dict[str, list[int]]
) -> None:
    frames = [
        guarded_frame(registered, str(table), {}).where(text).select(functions.lit(at).alias("at"), "id")
        for at, text in enumerate(CONDITIONS)
    ]
    found = reduce(DataFrame.union, frames).collect()
    ours = {text: sorted(r["id"] for r in found if r["at"] == at) for at, text in enumerate(CONDITIONS)}
    assert ours == judged


@pytest.mark.parametrize(("condition", "expected"), PRUNED)
def test_files_that_cannot_match_are_not_read(condition: str, expected: int, spark: SparkSession, table: Path) -> None:
    assert parts(read(spark, table, where=condition, **ONE_FILE_A_TASK)) == expected


@pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="PySpark 4.0 pushes no filters")
def test_pushed_filters_leave_out_the_same_files(registered: SparkSession, table: Path) -> None:
    frames = [(text, guarded_frame(registered, str(table), ONE_FILE_A_TASK)) for text, _ in PRUNED]
    assert [(text, parts(frame.where(text))) for text, frame in frames] == PRUNED


@pytest.mark.slow
def test_session_without_register_pushes_no_filter(spark: SparkSession, table: Path) -> None:
    frame = read(spark, table, **ONE_FILE_A_TASK).where("id = 6")
    assert parts(frame) == 4
    assert [row.id for row in frame.collect()] == [6]


@pytest.mark.parametrize(
    ("kind", "arguments", "condition"),
    [
        ("EqualTo", (("i",), 7), "i = 7"),
        ("EqualTo", (("d",), NAN), "d = double('nan')"),
        ("EqualTo", (("s", "t"), "x"), "s.t = 'x'"),
        ("EqualNullSafe", (("i",), 7), "i <=> 7"),
        ("EqualNullSafe", (("flag",), None), "flag <=> null"),
        ("GreaterThan", (("m",), Decimal("1.995")), "m > 1.995"),
        ("GreaterThan", (("at",), datetime(2024, 1, 1, tzinfo=UTC)), "at > '2024-01-01'"),
        ("GreaterThanOrEqual", (("t",), "é"), "t >= 'é'"),
        ("LessThan", (("wall",), datetime(1970, 1, 1)), "wall < TIMESTAMP_NTZ '1970-01-01 00:00:00'"),
        ("LessThanOrEqual", (("day",), date(1, 1, 1)), "day <= DATE '0001-01-01'"),
        ("In", (("i",), (1, 7, None)), "i in (1, 7, null)"),
        ("IsNull", (("s",),), "s is null"),
        ("IsNotNull", (("i",),), "i is not null"),
        ("StringStartsWith", (("t",), "a"), "startswith(t, 'a')"),
        ("StringEndsWith", (("t",), "b"), "endswith(t, 'b')"),
        ("StringContains", (("t",), "%"), "contains(t, '%')"),
    ],
)
@pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="PySpark 4.0 pushes no filters")
@pytest.mark.usefixtures("by_scan")
def test_filters_as_spark_hands_them_over(
    kind: str, arguments: tuple[Any, ...], condition: str, table: Path, judged: dict[str, list[int]]
) -> None:
    leaf = getattr(datasource, kind)(*arguments)
    assert read_in_process(table, leaf) == judged[condition]
    negated = read_in_process(table, datasource.Not(leaf))
    assert set(negated).isdisjoint(judged[condition])


@pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="PySpark 4.0 pushes no filters")
@pytest.mark.usefixtures("by_scan")
def test_filters_that_cannot_be_used_are_left_to_spark(table: Path) -> None:
    novel = type("Novel", (datasource.Filter,), {})()  # A kind of filter that a later Spark may add.
    pushed = [novel, datasource.Not(novel), datasource.EqualTo(("i",), "seven"), datasource.EqualTo(("no",), 1)]
    assert read_in_process(table, *pushed) == list(range(17))
    assert read_in_process(table, *pushed, datasource.EqualTo(("id",), 3)) == [3]


@pytest.fixture
def by_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imitate a Spark that keeps plans by scan, which is a Spark that pushes limits."""
    monkeypatch.setattr(datasource.DataSourceReader, "pushLimit", lambda self, limit: False, raising=False)


@pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="PySpark 4.0 pushes no filters")
def test_a_plain_load_takes_no_filter_where_spark_shares_plans(table: Path) -> None:
    assert not hasattr(datasource.DataSourceReader, "pushLimit")
    assert read_in_process(table, datasource.EqualTo(("id",), 3)) == list(range(17))


def read_in_process(path: Path, *pushed: Any) -> list[int]:
    """Return the ids that our reader returns before Spark filters again. Check that it hands back every filter."""
    source = LakehouseSource({"path": str(path)})
    reader: Any = source.reader(source.schema())
    assert list(reader.pushFilters(list(pushed))) == list(pushed)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(number for batch in batches for number in batch["id"].to_pylist())


@pytest.mark.slow
def test_filter_on_a_column_added_later_finds_its_rows(registered: SparkSession, tmp_path: Path) -> None:
    """Files older than a column have nulls in it, and their statistics do not contain it."""
    old = registered.createDataFrame([(1, "a", 1)], "id long, part string, ts long")
    new = registered.createDataFrame([(2, "b", 2, 5)], "id long, part string, ts long, later int")
    write(old, tmp_path)
    write(new, tmp_path)
    frame = read(registered, tmp_path)
    assert [row.id for row in frame.where("later = 5").collect()] == [2]
    assert [row.id for row in frame.where("later is null").collect()] == [1]
    assert [row.id for row in frame.where("not later <=> 5").collect()] == [1]
