"""Rare kinds of tables under Spark: each way to read returns the rows that Hudi returns."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakeformat.spark
from tests.helpers.bootstrapped import make_bootstrapped
from tests.helpers.fixture_tables import read_expectations, unpack

pytestmark = pytest.mark.spark

NAMES = ["v6_dropped_cow", "v9_dropped_mor_nested", "v6_evolved_cow", "v6_virtual_cow", "v9_virtual_mor"]


def rows_as_text(frame: DataFrame) -> list[tuple[str, ...]]:
    columns = sorted(name for name in frame.columns if name in {"id", "name", "title", "x", "reg", "day"})
    return sorted(tuple(map(str, row)) for row in frame.select(*columns).collect())


@pytest.mark.parametrize("name", [*NAMES[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[2:])])
def test_every_read_path_returns_the_rows_of_hudi(spark: SparkSession, name: str, tmp_path: Path) -> None:
    path, rows = str(unpack(f"own_kinds/{name}", tmp_path)), read_expectations(f"own_kinds/{name}")["snapshot"]
    frames = {
        "load": spark.read.format("lakehouse").load(path),
        "native": lakeformat.spark.read(spark, path, via="native"),
        "source": lakeformat.spark.read(spark, path, via="source"),
    }
    for way, frame in frames.items():
        assert ("_hoodie_record_key" in frame.columns) == (way == "load" and "virtual" not in name)
        columns = sorted({"id", "name", "title", "x", "reg", "day"}.intersection(frame.columns))
        wanted = sorted(tuple(str(row[column]) for column in columns) for row in rows)
        at = columns.index("reg")
        assert rows_as_text(frame) == wanted, way
        assert frame.count() == len(wanted), way
        assert rows_as_text(frame.where("reg = 'eu'")) == [row for row in wanted if row[at] == "eu"], way
        assert rows_as_text(frame.where("reg is null")) == [], way
    asked = lakeformat.spark.read(spark, path, where="reg > 'f'", columns=["id"])
    assert sorted(row["id"] for row in asked.collect()) == sorted(row["id"] for row in rows if row["reg"] > "f")


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", pytest.param("MERGE_ON_READ", marks=pytest.mark.slow)])
def test_save_leaves_partition_columns_out_and_load_has_them(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.drop.partition.columns": "true",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.allow.operation.metadata.field": "true",
    }
    first = spark.range(8).selectExpr("id", "cast(id % 2 as int) as day", "'n' as name")
    first.write.format("lakehouse").options(**options).mode("overwrite").save(path)
    second = spark.range(6, 10).selectExpr("id", "cast(id % 2 as int) as day", "'u' as name")
    second.write.format("lakehouse").options(**options).mode("append").save(path)
    wanted = sorted((n, n % 2, "u" if n > 5 else "n") for n in range(10))
    for via in ("native", "source"):
        frame = lakeformat.spark.read(spark, path, via=via)
        assert dict(frame.dtypes)["day"] == "int"
        assert sorted(map(tuple, frame.select("id", "day", "name").collect())) == wanted
        assert frame.where("day = 1").count() == 5
        assert frame.where("_hoodie_operation is not null").count() == 0
    files = [file for file in Path(path).rglob("*.parquet") if ".hoodie" not in file.parts]
    assert {tuple(pq.read_schema(file).names[5:]) for file in files} == {("_hoodie_operation", "id", "name")}


@pytest.mark.parametrize(
    "name", ["v9_cow_bootstrap_metadata", pytest.param("v6_mor_bootstrap_metadata", marks=pytest.mark.slow)]
)
def test_load_joins_skeletons_with_their_sources(spark: SparkSession, name: str, tmp_path: Path) -> None:
    path, source = make_bootstrapped(name, tmp_path)
    facts = read_expectations(f"hudi_rest/{name}")
    columns = ["_hoodie_record_key", "id", "name", "part", "ts"]
    for instant in ("00000000000001", None):
        rows = facts["snapshot"] if instant is None else facts["as_of"][instant]
        wanted = sorted(tuple(row[column] for column in columns) for row in rows)
        options = {} if instant is None else {"as.of.instant": instant}
        frame = spark.read.format("lakehouse").options(**options).load(str(path))
        assert sorted(map(tuple, frame.select(*columns).collect())) == wanted
        assert frame.count() == len(wanted)
        assert sorted(row["id"] for row in frame.where("part = 'b'").select("id").collect()) == [
            row[1] for row in wanted if row[3] == "b"
        ]
    shutil.rmtree(source)
    with pytest.raises(PySparkException, match="is missing; put it there, or set hoodie"):
        spark.read.format("lakehouse").option("as.of.instant", "00000000000001").load(str(path)).collect()
