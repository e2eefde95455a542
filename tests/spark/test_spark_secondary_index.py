"""A query of Spark by the value of a column with a secondary index opens only the files that hold the value."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeformat.model.files import BaseFileName
from lakeformat.spark import read, register, unregister
from tests.read.test_secondary_index import make_table

pytestmark = pytest.mark.spark

OSLO = "city = 'oslo'"


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_load_opens_only_the_files_of_a_value(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make_table(path, kind)
    parts = [part for split in table.read(where=OSLO).plan().splits for part in split.parts]
    named = {BaseFileName.match(part.path.rpartition("/")[2]).file_id for part in parts}  # type: ignore[union-attr]
    assert len(named) == 2
    register(spark)
    try:
        frame = spark.read.format("lakehouse").load(str(path)).where(OSLO)
    finally:
        unregister()
    for file in path.glob("p*/*"):
        if not any(file_id in file.name for file_id in named):
            file.write_bytes(b"x" * file.stat().st_size)
    if kind == "COPY_ON_WRITE":  # A frame decides which slices with log files its tasks merge before it has a filter.
        assert sorted(row.id for row in frame.collect()) == [2, 22]
    assert sorted(row.id for row in read(spark, str(path), where=OSLO).collect()) == [2, 22]
