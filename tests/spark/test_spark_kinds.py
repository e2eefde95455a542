"""Rare kinds of tables under Spark: each way to read returns the rows that Hudi returns."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat.spark
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
