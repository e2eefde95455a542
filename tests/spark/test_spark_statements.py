"""`LakehouseTable.update`, ``delete(where=)`` and ``merge``, compared with plain Spark on the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
from lakeformat import InvalidInputError, LakeformatError, SchemaMismatchError
from lakeformat.spark import LakehouseTable
from tests.helpers import hudi_rs
from tests.helpers.lakehouse import FLIGHT_COLUMNS, Rows, flights, leftovers

pytestmark = pytest.mark.spark

STORED: Rows = [(n, f"p{n % 3}", n % 10, n / 2) for n in range(60)]


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> Path:
    """Create a table of `STORED` with two file groups in each partition."""
    options = {"recordkey": "id", "partitionpath": "part", "ordering": "ts", "hoodie.parquet.small.file.limit": "0"}
    table = LakehouseTable.forPath(spark, str(tmp_path / "t"), **options)
    table.insert(flights(spark, STORED[:30]))
    table.insert(flights(spark, STORED[30:]))
    return tmp_path / "t"


def table_at(spark: SparkSession, path: Path) -> LakehouseTable:
    return LakehouseTable.forPath(spark, str(path))


def contents(path: Path) -> Rows:
    """Return the table's rows. Check that hudi-rs reads the same and that nothing is left over."""
    assert leftovers(path, outlived=True) == []
    rows = hudi_rs.assert_same_rows(lakeformat.open(path))
    return sorted(tuple(row[name] for name in ("id", "part", "ts", "x")) for row in rows)


def collected(frame: DataFrame) -> Rows:
    return sorted(tuple(row) for row in frame.select("id", "part", "ts", "x").collect())


def test_update_with_values_and_functions(spark: SparkSession, path: Path) -> None:
    result = table_at(spark, path).update(
        {"ts": 99, "x": lambda rows: pc.add(rows.column("x"), 0.25)}, where="part = 'p1' and x >= 10"
    )
    hit = "part = 'p1' and x >= 10"
    before = spark.createDataFrame(STORED, FLIGHT_COLUMNS)
    expected = before.where(hit).selectExpr("id", "part", "99L ts", "x + 0.25D x").union(before.where(f"not ({hit})"))
    assert contents(path) == collected(expected)
    assert result.report["rows"]["updated"] == before.where(hit).count()
    assert result.report["files"]["merged"] == 2


def test_update_with_column_expressions(spark: SparkSession, path: Path) -> None:
    values = {"x": functions.col("x") * 2 + functions.length("part"), "ts": 7}
    result = table_at(spark, path).update(values, where="ts > 4")
    before = spark.createDataFrame(STORED, FLIGHT_COLUMNS)
    changed = before.where("ts > 4").selectExpr("id", "part", "7L ts", "x * 2 + length(part) x")
    assert contents(path) == collected(changed.union(before.where("ts <= 4")))
    assert result.report["rows"]["updated"] == 30


def test_delete_by_condition_and_by_key(spark: SparkSession, path: Path) -> None:
    table = table_at(spark, path)
    assert table.delete(where="ts in (1, 2) or part = 'p0'").report["rows"]["deleted"] == 28
    table.delete(flights(spark, STORED[:5]))
    left = [row for row in STORED[5:] if row[2] not in (1, 2) and row[1] != "p0"]
    assert contents(path) == left
    assert [entry.operation for entry in table.history()[:2]] == ["delete", "delete"]
    assert table.delete(where="ts = 1000").report["files"]["merged"] == 0


def test_merge_equals_a_spark_join(spark: SparkSession, path: Path) -> None:
    """Spark joins both sides and applies the clauses. The table must hold the same rows."""
    changes: Rows = [(n, f"p{n % 3}", (n * 7) % 12, -float(n)) for n in range(40, 80)]
    source = flights(spark, changes, 3).withColumn("op", functions.expr("if(id % 5 = 0, 'd', 'u')"))
    merge = table_at(spark, path).merge(source).when_matched_delete("op = 'd' and source.ts > target.ts")
    merge = merge.when_matched_update(["x"], where="source.ts > target.ts")
    result = merge.when_not_matched_insert("op = 'u'").execute()
    spark.createDataFrame(STORED, FLIGHT_COLUMNS).createOrReplaceTempView("stored")
    source.createOrReplaceTempView("changes")
    joined = spark.sql(
        """
        select coalesce(t.id, s.id) id, coalesce(t.part, s.part) part, coalesce(t.ts, s.ts) ts,
               case when t.id is null or s.ts > t.ts then s.x else t.x end x
        from stored t full join changes s on t.id = s.id and t.part = s.part
        where not (t.id is not null and s.id is not null and s.op = 'd' and s.ts > t.ts)
          and not (t.id is null and s.op <> 'u')
           or s.id is null
        """
    )
    assert contents(path) == collected(joined)
    rows = result.report["rows"]
    assert rows["incoming"] == 40
    assert rows["inserted"] == 16
    assert rows["updated"] > 0
    assert rows["deleted"] > 0


def test_refused_statement_raises_one_line_and_publishes_nothing(spark: SparkSession, path: Path) -> None:
    table = table_at(spark, path)
    before = contents(path)

    def refused(act: object, error: type[LakeformatError], *parts: str) -> None:
        assert callable(act)
        with pytest.raises(LakeformatError) as caught:
            act()
        assert type(caught.value) is error
        assert "\n" not in str(caught.value)
        assert [part for part in parts if part not in str(caught.value)] == []
        assert len(table.history()) == 2
        assert contents(path) == before

    source = flights(spark, STORED[:3])
    refused(lambda: table.update({"id": 5}), SchemaMismatchError, "'id'", "cannot be set")
    refused(lambda: table.update({"ID": functions.col("ts")}), SchemaMismatchError, "'id'", "cannot be set")
    refused(lambda: table.update({"x": functions.col("x")}, "xx = 1"), InvalidInputError, "'xx'", "did you mean 'x'")
    refused(lambda: table.update({"ts": functions.lit("a")}), SchemaMismatchError, "'ts'", "convert")
    refused(lambda: table.update({"ts": lambda rows: pa.array(["a"] * len(rows))}), SchemaMismatchError, "'ts'")
    refused(table.delete, InvalidInputError, "keys or a condition")
    refused(lambda: table.merge(source).execute(), InvalidInputError, "no clause")
    refused(
        lambda: table.merge(source.union(source)).when_matched_delete().execute(),
        InvalidInputError,
        "more than once",
        "one row per key",
    )
