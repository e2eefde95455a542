"""Spark takes both zeros for one value. The dictionaries and key filters of Parquet's reader take them for two."""

from __future__ import annotations

import shutil
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
from lakeformat.spark import LakehouseTable, read
from tests.helpers.commit_files import edit_commit
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.spark

SCHEMA = a_schema(id="int64", d="float64", f="float32", s=pa.struct([("d", pa.float64()), ("f", pa.float32())]))
SPARK_SCHEMA = "id long, d double, f float, s struct<d: double, f: float>"
CONDITIONS = [
    "d = 0", "d = -0.0D", "d in (0.0D, 5.0D)", "d <=> 0.0D", "d >= 0", "d <= -0.0D", "not (d < 0)", "not (d > 0L)",
    "d between -1 and 0.0", "d > 0.5D", "f = 0", "0 >= f", "f in (cast(0 as float), cast(7 as float))", "s.d >= 0",
    "s.f = 0", "s.f between 0 and 1",
]  # fmt: skip
EXPLAINED = [text for text in CONDITIONS if "cast" not in text]


def _rows(first: int, values: list[float]) -> pa.Table:
    cells = [{"id": first + at, "d": x, "f": x, "s": {"d": x, "f": x}} for at, x in enumerate(values)]
    return pa.Table.from_pylist(cells, SCHEMA)


@pytest.fixture(params=["ours", pytest.param("of others", marks=pytest.mark.slow)])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Create a table with a file of negative zeros alone and a file of others.

    In files "of others" the columns have Parquet's bloom filters, and NaN was not counted.
    """
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **{"hoodie.write.table.version": 6})
    table.bulk_insert(_rows(1, [-0.0] * 40))
    table.bulk_insert(_rows(41, [0.0, 1.0, -1.0] * 20))
    if request.param == "of others":
        for file in (tmp_path / "t").glob("*.parquet"):
            blooms = dict.fromkeys(("d", "f", "s.d", "s.f"), True)
            (commit,) = (tmp_path / "t" / ".hoodie").glob(f"{file.stem.rpartition('_')[2]}.commit")
            size, stored = file.stat().st_size, pq.read_table(file)
            pq.write_table(stored, file, write_page_index=True, bloom_filter_options=blooms)
            old, new = str(size), str(file.stat().st_size)
            edit_commit(commit, lambda text, old=old, new=new: text.replace(old, new))
        shutil.rmtree(tmp_path / "t" / ".hoodie" / ".lakeformat" / "index")
    return str(tmp_path / "t")


def _answers(frame: DataFrame) -> DataFrame:
    answers = (frame.where(text).select(functions.lit(text).alias("text"), "id") for text in CONDITIONS)
    return reduce(DataFrame.union, answers)


def _found(answers: DataFrame) -> dict[str, list[int]]:
    rows = answers.groupBy("text").agg(functions.sort_array(functions.collect_list("id")).alias("ids")).collect()
    return {row.text: row.ids for row in rows}


def test_both_zeros_match_on_every_read_path(spark: SparkSession, path: str) -> None:
    plain = spark.createDataFrame(
        [tuple(row.values()) for row in lakeformat.open(path).to_arrow().to_pylist()], SPARK_SCHEMA
    )
    wanted = _found(_answers(plain))
    assert len(wanted["d = 0"]) == 60
    read(spark, path).createOrReplaceTempView("both_zeros")
    frames = {
        "read": read(spark, path),
        "table": LakehouseTable.forPath(spark, path).read(via="native"),
        "load": spark.read.format("lakehouse").load(path),
        "view": spark.sql("select * from both_zeros"),
    }
    assert {way: _found(_answers(frame)) for way, frame in frames.items()} == dict.fromkeys(frames, wanted)
    assert read(spark, path).where("d = 0").count() == 60
    named = {text: read(spark, path, where=text) for text in EXPLAINED}
    answers = reduce(
        DataFrame.union, (frame.select(functions.lit(text).alias("text"), "id") for text, frame in named.items())
    )
    assert _found(answers) == {text: ids for text, ids in wanted.items() if text in EXPLAINED}


def _pushed(frame: DataFrame) -> str:
    text: str = frame._jdf.queryExecution().executedPlan().toString()
    return text.partition("PushedFilters: [")[2].partition("]")[0]


def test_conditions_still_reach_the_scan_of_columns_without_nan(spark: SparkSession, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    table.bulk_insert(_rows(1, [0.0, 1.0, 2.0]))
    frame = read(spark, str(tmp_path / "t"))
    assert "GreaterThan(d,100.0)" in _pushed(frame.where("d > 100D"))
    assert "EqualTo(s.f,0.0)" in _pushed(frame.where("s.f = cast(0 as float)"))
