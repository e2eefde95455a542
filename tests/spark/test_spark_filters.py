"""Pushed filters change what is read, never the result. Spark without pushdown is the oracle."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, datasource, functions

from lakeformat.spark.pushdown import guarded_frame
from lakeformat.spark.source import LakehouseSource
from tests.helpers.lakehouse import parts, read, write

pytestmark = pytest.mark.spark

NAN, INF = float("nan"), float("inf")
UTC = timezone.utc
#: Column, Spark type, eight values. In the eight rows after them, every second value is null.
COLUMNS: list[tuple[str, str, list[Any]]] = [
    ("i", "int", [1, 2, 3, -5, 0, 2**31 - 1, -(2**31), 7]),
    ("l", "bigint", [1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0, 3, 4]),
    ("f", "float", [0.5, 1.5, NAN, INF, -INF, 0.0, -0.0, 16777216.0]),
    ("d", "double", [0.1, 1.5, NAN, INF, -INF, 0.0, -0.0, 9007199254740993.0]),
    ("m", "decimal(10,2)", [Decimal(t) for t in ("0.10", "1.50", "-1.50", "0", "99999999.99", "2", "2.01", "7")]),
    ("t", "string", ["", "a", "ab", "a%b", "A", "é", "\uffff", "\U0001f600"]),
    ("b", "binary", [b"", b"a", b"ab", b"\xff", b"\x00", b"\x7f", b"\x80", b"abc"]),
    ("day", "date", [date(1969, 12, 31), date(1970, 1, 1), date(2024, 1, 1), date(2024, 1, 2), date(1, 1, 1),
                     date(9999, 12, 31), date(2023, 12, 31), date(2024, 2, 29)]),
    ("at", "timestamp", [datetime(2024, 1, 1, 0, 0, 0, micro, UTC) for micro in range(4)]
                        + [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2024, 1, 2, tzinfo=UTC),
                           datetime(2023, 12, 31, 19, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)]),
    ("wall", "timestamp_ntz", [datetime(2024, 1, 1, hour) for hour in range(6)]
                              + [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2100, 1, 1)]),
    ("flag", "boolean", [True, False] * 4),
    ("s", "struct<a:bigint,t:string>", [(number - 4, None if number % 3 else "x") for number in range(8)]),
]  # fmt: skip
SCHEMA = ", ".join(["id long, part string", *(f"{name} {kind}" for name, kind, _ in COLUMNS)])
CONDITIONS = [
    *("i = 7", "i > 2", "i >= 2", "i < -5", "i <= -5", "i <=> 7", "i <=> null", "i in (1, 7, null)"),
    *("i not in (1, 7)", "i != 3", "i is null", "i is not null", "not i > 2", "i > 2.5", "i = 2147483647"),
    *("l = 9007199254740992", "l > 9007199254740992", "l in (3, 9223372036854775807)", "l > 1e18"),
    *("f = 0", "f > 100", "f = float('nan')", "f <= float('-inf')", "f = 0.1", "f in (0.5, float('nan'))"),
    *("d = 0", "d <=> 0", "d > 1.5", "not d <= 1.5", "d = double('nan')", "d < double('nan')", "d != 0.1"),
    *("m = 2", "m > 1.995", "m in (0.1, 7)", "m <= -1.50", "m >= 99999999.99"),
    *("t = 'a'", "t > 'a'", "t >= 'é'", "t > '\uffff'", "t like 'a%'", "t like '%b'", "t like '%%%'", "t = ''"),
    *("startswith(t, 'a')", "endswith(t, 'b')", "contains(t, '%')", "t in ('é', 'A')", "t not like 'a%'"),
    *("b = X'6162'", "b > X'7f'", "b in (X'', X'ff')", "b <= X'00'"),
    *("day = '2024-01-01'", "day > DATE '2023-12-31'", "day <= DATE '0001-01-01'", "day in (DATE '2024-02-29')"),
    *("at = '2024-01-01 00:00:00.000002'", "at > '2024-01-01'", "at < TIMESTAMP '1970-01-01 00:00:00Z'"),
    *("at in (TIMESTAMP '2024-01-02 00:00:00Z', TIMESTAMP '2100-01-01 00:00:00Z')", "at is null"),
    *("wall = TIMESTAMP_NTZ '2024-01-01 03:00:00'", "wall > TIMESTAMP_NTZ '2024-01-01 04:00:00'"),
    *("wall < TIMESTAMP_NTZ '1970-01-01 00:00:00'", "wall is null"),
    *("flag", "not flag", "flag = false", "flag is null", "flag <=> null"),
    *("s.a > 0", "s.t = 'x'", "s.t is null", "s is null", "s is not null and s.a in (-4, 2)"),
    *("part = 'p1' and i > 0", "part in ('p0', 'p2')", "part > 'p2'", "part is null"),
    *("i = 1 or t = 'ab'", "_hoodie_record_key = '5'", "_hoodie_partition_path = 'p1' and day is not null"),
]  # fmt: skip


ONE_FILE_A_TASK = {"lakeformat.read.split.bytes": "1"}


def rows() -> list[tuple[Any, ...]]:
    """Return eight full rows, eight with some nulls, and one of nulls only, in four partitions."""
    full = [(n, *(values[n] for _, _, values in COLUMNS)) for n in range(8)]
    holes = [
        (n + 8, *(None if (n + at) % 2 else values[n] for at, (_, _, values) in enumerate(COLUMNS))) for n in range(8)
    ]
    nulls = [(16, *(None for _ in COLUMNS))]
    return [(row[0], f"p{row[0] // 5}", *row[1:]) for row in [*full, *holes, *nulls]]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a table of those rows, with one file for each partition."""
    path = tmp_path_factory.mktemp("filters") / "t"
    frame = spark.createDataFrame(rows(), SCHEMA).repartition("part")
    frame.write.format("lakehouse").options(recordkey="id", partitionpath="part").mode("append").save(str(path))
    return path


@pytest.fixture(scope="module")
def judged(spark: SparkSession, table: Path) -> dict[str, list[int]]:
    """Return condition -> ids of the rows that Spark selects without pushdown."""
    collected = spark.createDataFrame(read(spark, table).collect(), read(spark, table).schema)
    flags = [functions.expr(text).alias(f"_{at}") for at, text in enumerate(CONDITIONS)]
    answers = collected.select("id", *flags).collect()
    return {text: sorted(r["id"] for r in answers if r[f"_{at}"]) for at, text in enumerate(CONDITIONS)}


def test_every_condition_selects_some_rows(judged: dict[str, list[int]]) -> None:
    assert len(judged) == len(CONDITIONS)
    never = {text for text, ids in judged.items() if not ids}
    assert never == {"f = 0.1", "part is null"}


@pytest.mark.slow
def test_pushed_conditions_select_the_same_rows(
    registered: SparkSession, table: Path, judged: dict[str, list[int]]
) -> None:
    frames = [
        guarded_frame(registered, str(table), {}).where(text).select(functions.lit(at).alias("at"), "id")
        for at, text in enumerate(CONDITIONS)
    ]
    found = reduce(DataFrame.union, frames).collect()
    answers = {text: sorted(r["id"] for r in found if r["at"] == at) for at, text in enumerate(CONDITIONS)}
    assert answers == judged


#: Condition -> how many of the four files may hold a match. In the last file ``i`` is always null.
PRUNED = [
    ("part = 'p1'", 1),
    ("part in ('p0', 'p3') and i is not null", 1),
    ("_hoodie_partition_path >= 'p2'", 2),
    ("id >= 14", 2),
    ("id = 6", 1),
    ("id < 5 and part = 'p3'", 1),
    ("at > '2099-01-01'", 1),
    ("s.a = 3", 2),
    ("i is not null", 3),
]


@pytest.mark.parametrize(("condition", "expected"), PRUNED)
def test_files_that_cannot_match_are_not_read(condition: str, expected: int, spark: SparkSession, table: Path) -> None:
    assert parts(read(spark, table, where=condition, **ONE_FILE_A_TASK)) == expected


@pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="PySpark 4.0 pushes no filters")
def test_pushed_filters_leave_out_the_same_files(registered: SparkSession, table: Path) -> None:
    frames = [(text, guarded_frame(registered, str(table), ONE_FILE_A_TASK)) for text, _ in PRUNED]
    assert [(text, parts(frame.where(text))) for text, frame in frames] == PRUNED


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
