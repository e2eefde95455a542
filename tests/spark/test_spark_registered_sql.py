"""After ``register`` ``spark.sql`` changes tables of ours, and ``load`` takes a path object."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeformat.spark import register, unregister, view

pytestmark = pytest.mark.spark


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    register(spark)
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string")
    rows.write.format("lakehouse").option("recordkey", "id").mode("append").save(str(tmp_path / "t"))
    view(spark, "changed_here", str(tmp_path / "t"))
    yield tmp_path / "t"
    unregister()


def contents(spark: SparkSession, path: Path) -> dict[int, str]:
    return {row.id: row.v for row in spark.read.format("lakehouse").load(path).collect()}  # type: ignore[arg-type]


def test_statements_of_spark_sql_change_views_and_paths(spark: SparkSession, path: Path) -> None:
    spark.sql("update changed_here set v = 'c' where id = 1")
    spark.sql(f"DELETE FROM lakehouse.`{path}` WHERE id = 2")
    spark.sql("merge into changed_here t using (select 3L id, 'd' v) s on t.id = s.id when not matched then insert *")
    assert contents(spark, path) == {1: "c", 3: "d"}
    original = SparkSession.sql
    unregister()
    assert SparkSession.sql is not original
    assert spark.sql("select 1 as one").collect()[0].one == 1


@pytest.mark.parametrize("made_by", ["frame", "statement"])
def test_change_of_a_view_that_spark_made_is_answered_with_a_way(made_by: str, spark: SparkSession, path: Path) -> None:
    if made_by == "frame":
        spark.read.format("lakehouse").load(str(path)).createOrReplaceTempView("of_spark")
    else:
        spark.sql(f"create or replace temporary view of_spark using lakehouse options (path '{path}')")
    with pytest.raises(PySparkException) as refused:
        spark.sql("update of_spark set v = 'c' where id = 1").collect()
    (note,) = refused.value.__notes__
    assert "lakeformat.spark.view(spark, 'of_spark', path)" in note
    with pytest.raises(PySparkException) as refused:
        spark.sql(f"select * from lakehouse.`{path}`").collect()
    assert "lakeformat.spark.sql(spark, statement)" in refused.value.__notes__[0]
    with pytest.raises(PySparkException) as refused:
        spark.sql("update nobodys set v = 'c'").collect()
    assert not getattr(refused.value, "__notes__", [])
