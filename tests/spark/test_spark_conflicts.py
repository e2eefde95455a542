"""Writers beside Spark's writes: what they change before our commit is not lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import lakeformat
from lakeformat.spark import LakehouseTable, sql
from tests.helpers.tables import a_batch

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "text",
    [
        "update {t} set v = meddle(v)",
        "merge into {t} t using {t} s on t.id = s.id when matched then update set v = meddle(s.v)",
    ],
)
def test_statement_runs_again_on_the_rows_of_another_writer(text: str, spark: SparkSession, tmp_path: Path) -> None:
    """Another writer updates the rows while Spark computes them for the first time."""
    path, flag = str(tmp_path / "t"), tmp_path / "done"
    lakeformat.create(path, {"id": "int64", "v": "int64"}, record_key="id").insert(a_batch(id=[1, 2], v=[1, 2]))

    def meddle(value: int) -> int:
        if not flag.exists():
            flag.touch()
            lakeformat.open(path).upsert(pa.table({"id": [1, 2], "v": [10, 20]}))
        return value + 1

    spark.udf.register("meddle", udf(meddle, "bigint"))
    sql(spark, text.replace("{t}", f"lakehouse.`{path}`"))
    assert flag.exists()
    assert lakeformat.open(path).to_arrow(["id", "v"]).sort_by("id").to_pylist() == [
        {"id": 1, "v": 11},
        {"id": 2, "v": 21},
    ]


class Meddling(Mapping[str, str]):
    """Extra metadata that acts when it is read, which is after the write was planned and before it begins."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        self._act()
        return iter(["job"])

    def __getitem__(self, name: str) -> str:
        return name


def test_small_file_of_an_undone_commit_is_not_used(spark: SparkSession, tmp_path: Path) -> None:
    """The write was planned from a snapshot with a commit that is undone before the write begins."""
    path = str(tmp_path / "t")
    other = lakeformat.create(path, {"p": "string", "v": "int64"}, partition_by="p")
    other.insert(a_batch(p="a", v=1))
    last = other.insert(a_batch(p="b", v=2)).instant_time
    undone: list[str] = []

    def undo() -> None:
        if not undone:
            undone.append(last)
            other.rollback(last)

    rows = spark.createDataFrame([("a", 3), ("b", 4)], "p string, v bigint")
    LakehouseTable.forPath(spark, path).insert(rows, extra_metadata=Meddling(undo))
    assert undone
    found = lakeformat.open(path)
    assert sorted((row["p"], row["v"]) for row in found.to_arrow(["p", "v"]).to_pylist()) == [
        ("a", 1),
        ("a", 3),
        ("b", 4),
    ]
    assert str(found.check()) == "nothing is wrong"
