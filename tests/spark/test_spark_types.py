"""Every Spark type that a Hudi table can hold survives a write and a read. The others are refused by name."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import lakeformat
from tests.helpers.lakehouse import leftovers, read, refusal

pytestmark = pytest.mark.spark

UTC = timezone.utc
#: Column, Spark type, values (null is added), and the type that a read returns if it differs.
TYPES: list[tuple[str, str, list[Any], str | None]] = [
    ("flag", "boolean", [True, False], None),
    ("tiny", "tinyint", [-128, 127], "int"),
    ("small", "smallint", [-32768, 32767], "int"),
    ("whole", "int", [-(2**31), 2**31 - 1], None),
    ("big", "bigint", [-(2**63), 2**63 - 1], None),
    ("single", "float", [1.5, float("-inf")], None),
    ("double", "double", [-0.0, 1e300], None),
    ("narrow", "decimal(9,2)", [Decimal("-1234567.89"), Decimal("0.01")], None),
    ("middle", "decimal(18,6)", [Decimal("-123456789012.000001"), Decimal("7.000000")], None),
    ("wide", "decimal(38,10)", [Decimal("-1234567890123456789012345678.0123456789"), Decimal("1e-10")], None),
    ("text", "string", ["", "é\U0001f600\n,'\""], None),
    ("bytes", "binary", [b"", b"\x00\xff"], None),
    ("day", "date", [date(1, 1, 1), date(9999, 12, 31)], None),
    ("at", "timestamp", [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29, 1, 2, 3, 4)], None),
    ("wall", "timestamp_ntz", [datetime(1, 1, 1), datetime(2024, 3, 31, 2, 30, 0, 1)], None),
    ("items", "array<int>", [[], [1, None]], None),
    ("lists", "array<array<string>>", [[["a"], None, []], [[None]]], None),
    ("pairs", "map<string,double>", [{}, {"a": 1.5, "b": None}], None),
    ("tree", "struct<a:int,b:struct<c:string,d:array<date>>>",
     [(1, ("x", [date(2024, 1, 1), None])), (None, None)], None),
    ("deep", "map<string,array<struct<k:bigint,v:decimal(5,2)>>>",
     [{"x": [(1, Decimal("1.25")), None]}, {"y": None}], None),
    ("people", "array<struct<name:string,at:timestamp>>", [[("n", datetime(2024, 1, 1))], [(None, None)]], None),
]  # fmt: skip
SCHEMA = ", ".join(["id int", *(f"{name} {kind}" for name, kind, _, _ in TYPES)])
STORED = ", ".join(["id int", *(f"{name} {other or kind}" for name, kind, _, other in TYPES)])
ROWS = [
    (0, *(values[0] for _, _, values, _ in TYPES)),
    (1, *(values[1] for _, _, values, _ in TYPES)),
    (2, *(None for _ in TYPES)),
]


def save(rows: DataFrame, path: Path, operation: str = "upsert") -> None:
    options = {"recordkey": "id", "operation": operation}
    rows.write.format("lakehouse").options(**options).mode("append").save(str(path))


def to_tuples(value: Any) -> Any:
    """Return Spark's rows as tuples, at all levels."""
    match value:
        case tuple():
            return tuple(to_tuples(inner) for inner in value)
        case list():
            return [to_tuples(inner) for inner in value]
        case dict():
            return {key: to_tuples(inner) for key, inner in value.items()}
        case _:
            return value


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted((to_tuples(tuple(row)) for row in frame.collect()), key=lambda row: row[0])


@pytest.mark.parametrize(
    ("session", "operation"), [("default", "upsert"), ("registered", "bulk_insert")], indirect=["session"]
)
def test_all_types_round_trip(operation: str, session: SparkSession, tmp_path: Path) -> None:
    frame = session.createDataFrame(ROWS, SCHEMA)
    save(frame, tmp_path, operation)
    back = read(session, tmp_path, meta_columns=False)
    assert back.schema == StructType.fromDDL(STORED)
    assert rows_of(back) == rows_of(frame) == ROWS


def test_all_types_survive_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    save(spark.createDataFrame(ROWS, SCHEMA), tmp_path)
    swapped = [(1, *ROWS[0][1:]), (3, *ROWS[1][1:])]
    save(spark.createDataFrame(swapped, SCHEMA), tmp_path)
    assert rows_of(read(spark, tmp_path, meta_columns=False)) == [ROWS[0], swapped[0], ROWS[2], swapped[1]]


def test_plain_python_reads_the_instants_spark_wrote(spark: SparkSession, tmp_path: Path) -> None:
    save(spark.createDataFrame(ROWS, SCHEMA), tmp_path)
    at, wall = (lakeformat.open(tmp_path).to_arrow([name], where="id = 1")[name] for name in ("at", "wall"))
    # Spark takes a datetime without a zone as one in the driver's zone.
    assert at.to_pylist() == [datetime(2024, 2, 29, 1, 2, 3, 4).astimezone(UTC)]
    assert wall.to_pylist() == [datetime(2024, 3, 31, 2, 30, 0, 1)]


def test_the_sessions_zone_does_not_move_instants(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1 id, TIMESTAMP '2024-06-01 12:00:00' at, TIMESTAMP_NTZ '2024-06-01 12:00:00' wall")
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "America/New_York")
    save(frame, tmp_path)
    texts = read(elsewhere, tmp_path).selectExpr("string(at)", "string(wall)").collect()
    assert [tuple(row) for row in texts] == [("2024-06-01 08:00:00", "2024-06-01 12:00:00")]


def test_required_columns_round_trip(spark: SparkSession, tmp_path: Path) -> None:
    """Spark 4.3 checks each batch against the frame's schema, nullability included."""
    frame = spark.sql(
        "SELECT int(id) id, 'x' word, named_struct('a', 1, 'b', array(1L)) tree, map('k', 1) pairs FROM range(3)"
    )
    assert not any(field.nullable for field in frame.schema)
    save(frame, tmp_path)
    back = read(spark, tmp_path, meta_columns=False)
    assert all(field.nullable for field in back.schema)
    save(back, tmp_path)
    assert rows_of(back) == rows_of(frame)
    required = spark.read.format("lakehouse").schema(frame.schema).load(str(tmp_path))
    assert rows_of(required) == rows_of(frame)


def test_column_names_that_need_quotes_work(registered: SparkSession, tmp_path: Path) -> None:
    frame = registered.sql("SELECT 1 id, 2 _under, 3 CamelCase, named_struct('Inner_1', 4) `order`")
    save(frame, tmp_path)
    back = read(registered, tmp_path, meta_columns=False)
    assert back.columns == frame.columns
    assert rows_of(back.where("CamelCase = 3 and `order`.Inner_1 = 4")) == [(1, 2, 3, (4,))]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("INTERVAL '1' DAY", "column 'c' has the type duration"),
        ("INTERVAL '1-2' YEAR TO MONTH", "column 'c' has the type interval year to month"),
        ("array()", "column 'c' has the type array<void>"),
        ("map(1, 'x')", "column 'c'"),
        ("named_struct('bad name', 1)", "column 'c.bad name' cannot be stored"),
        ("NULL", "column 'c' has the type null"),
    ],
)
def test_unsupported_types_are_refused(expression: str, reason: str, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    refused = refusal(lambda: save(spark.sql(f"SELECT 1 id, {expression} c"), path))
    assert refused.error == "SchemaMismatchError"
    assert refused.text.startswith(reason)
    assert not path.exists() or leftovers(path) == []
