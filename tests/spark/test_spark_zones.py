"""Conditions mean the same on every host: as in Spark, with the session's time zone from ``time_zone=``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
from lakeformat.spark import LakehouseTable, read
from tests.helpers.spark_answers import answers, selected
from tests.helpers.spark_questions import zone_name
from tests.helpers.zoned_conditions import HARD, SCHEMA, ZONES, rows

pytestmark = pytest.mark.spark

ZONE = "spark.sql.session.timeZone"
ROWS = rows()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the rows as a table in folders of days."""
    path = tmp_path_factory.mktemp("zones")
    days = lakeformat.create(path / "days", SCHEMA, record_key="id", partition_by="day")
    days.bulk_insert(ROWS)
    return path


@pytest.fixture
def zoned(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, request.param)
    yield spark
    spark.conf.set(ZONE, before)


def _judged(zone: str) -> dict[str, list[int]]:
    """Return the rows that Spark selects of plain rows, by its record."""
    theirs = answers(zone_name(zone))
    return {text: selected(theirs[text]) for text in HARD}


def _found(frames: dict[str, DataFrame]) -> dict[str, list[int]]:
    found = (frame.select(functions.lit(text).alias("text"), "id") for text, frame in frames.items())
    rows = reduce(DataFrame.union, found).collect()
    return {text: sorted(row.id for row in rows if row.text == text) for text in frames}


@pytest.mark.parametrize(
    "zoned",
    [pytest.param(zone, marks=pytest.mark.slow) for zone in (*ZONES[:3], ZONES[4])],
    indirect=True,
)
def test_every_read_path_selects_the_same_rows(zoned: SparkSession, folder: Path) -> None:
    spark, path = zoned, str(folder / "days")
    wanted = _judged(str(spark.conf.get(ZONE)))
    table, source = LakehouseTable.forPath(spark, path), spark.read.format("lakehouse")
    read(spark, path).createOrReplaceTempView("zoned_days")
    ways = {
        "read(where=)": lambda text: read(spark, path, where=text),
        "read(where=, via source)": lambda text: read(spark, path, where=text, via="source"),
        "read().where": lambda text: read(spark, path).where(text),
        "read(where=, via=)": lambda text: table.read(where=text, via="native"),
        "load().where": lambda text: source.load(path).where(text),
        "option(where).load": lambda text: spark.read.format("lakehouse").option("where", text).load(path),
        "view": lambda text: spark.sql(f"select * from zoned_days where {text}"),  # noqa: S608
    }
    for way, select in ways.items():
        assert (way, _found({text: select(text) for text in HARD})) == (way, wanted)
    assert [table.count(text) for text in HARD] == [len(wanted[text]) for text in HARD]


@pytest.mark.parametrize("zoned", ["America/New_York"], indirect=True)
def test_delete_update_and_merge_use_the_session_zone(zoned: SparkSession, tmp_path: Path) -> None:
    spark, everything = zoned, set(range(ROWS.num_rows))
    wanted = {text: set(ids) for text, ids in _judged("America/New_York").items()}

    def left(path: Path) -> set[int]:
        return set(lakeformat.open(path).to_arrow(["id"])["id"].to_pylist())

    for at, text in enumerate(HARD[:2]):
        for name in ("spark", "plain"):
            lakeformat.create(tmp_path / f"{name}{at}", SCHEMA, record_key="id").bulk_insert(ROWS)
        LakehouseTable.forPath(spark, str(tmp_path / f"spark{at}")).delete(where=text)
        lakeformat.open(tmp_path / f"plain{at}").delete(where=text, time_zone="America/New_York")
        assert left(tmp_path / f"spark{at}") == left(tmp_path / f"plain{at}") == everything - wanted[text]
    named = str(tmp_path / "spark0")
    LakehouseTable.forPath(spark, named).update({"text": "seen"}, where=HARD[2])
    LakehouseTable.forPath(spark, named).update({"text": functions.lit("computed")}, where=HARD[3])
    found = {row["id"]: row["text"] for row in lakeformat.open(named).to_arrow(["id", "text"]).to_pylist()}
    assert {key for key, text in found.items() if text == "computed"} == wanted[HARD[3]] & set(found)
    assert {key for key, text in found.items() if text == "seen"} == (wanted[HARD[2]] - wanted[HARD[3]]) & set(found)
    source = spark.createDataFrame([(key,) for key in found], "id long")
    condition = "target.at >= '2024-03-10'"
    LakehouseTable.forPath(spark, str(tmp_path / "spark1")).merge(source).when_matched_delete(condition).execute()
    lakeformat.open(tmp_path / "plain1", time_zone="America/New_York").merge(
        ROWS.select(["id"]).filter([key in found for key in range(ROWS.num_rows)])
    ).when_matched_delete(condition).execute()
    assert left(tmp_path / "spark1") == left(tmp_path / "plain1")
    assert left(tmp_path / "spark1") == everything - wanted[HARD[1]] - (wanted[HARD[0]] & set(found))
