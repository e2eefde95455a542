"""Settings of Spark's session that change what a built-in source writes or reads: obeyed, warned about or refused."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
import lakeformat.spark
from lakeformat.errors import InvalidOptionError
from lakeformat.spark import register, unregister
from lakeformat.spark.settings import OVERWRITE_MODE, SETTINGS, Answer, find_setting, settings_page
from tests.helpers.lakehouse import refusal
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spark-settings.md"
OPTIONS = {"recordkey": "id", "partitionpath": "p"}
#: Groups of settings that are all about sources.
GROUPS = ("spark.sql.sources.", "spark.sql.files.", "spark.sql.parquet.", "spark.sql.legacy.parquet.")
#: Words in Spark's own description of a setting that changes what a source does.
WORDS = re.compile(r"parquet|data ?source|file source|overwrit|when (writing|reading)|table insertion", re.IGNORECASE)


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """Return a new session, in which a test may change settings."""
    register(spark)
    return spark.newSession()


def rows(session: SparkSession, first: int = 0, last: int = 30) -> DataFrame:
    return session.range(first, last, 1, 1).selectExpr("id", "concat('p', id % 3) p")


def save(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("lakehouse").options(**{**OPTIONS, **options}).mode(mode).save(str(path))


def count(path: Path) -> int:
    return lakeformat.open(path).read().count()


def test_every_setting_of_sources_has_an_answer(spark: SparkSession) -> None:
    settings = getattr(getattr(spark._jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$")
    known = {entry.key(): entry.doc() for entry in spark._jvm.java.util.ArrayList(settings.getConfigEntries())}
    public = {row[0] for row in spark.sql("set -v").collect()}
    names = {name for name, doc in known.items() if name.startswith(GROUPS) or WORDS.search(doc)}
    names |= {name for name in public if name.startswith(GROUPS)}
    assert len(names) > 80
    assert sorted(name for name in names if find_setting(name) is None) == []


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page()
    names = [setting.name for setting in SETTINGS]
    assert len(set(names)) == len(names)
    assert all(setting.uses for setting in SETTINGS if setting.answer in (Answer.WARNED, Answer.REFUSED))


def test_an_overwrite_replaces_the_partitions_that_parquet_replaces(session: SparkSession, tmp_path: Path) -> None:
    new, plain = session.createDataFrame([(100, "p1")], "id long, p string"), str(tmp_path / "plain")
    for mode, options, kept in (
        ("static", {}, 1),
        ("DYNAMIC", {}, 21),
        ("dynamic", {"partitionOverwriteMode": "static"}, 1),
        ("static", {"partitionOverwriteMode": "dynamic"}, 21),
    ):
        session.conf.set(OVERWRITE_MODE, mode)
        path = tmp_path / f"{mode}-{len(options)}"
        save(rows(session), path)
        save(new, path, "overwrite", **options)
        rows(session).write.mode("overwrite").parquet(plain)  # Without partitions it is replaced whatever is set.
        rows(session).write.mode("overwrite").partitionBy("p").option("partitionOverwriteMode", "static").parquet(plain)
        new.write.mode("overwrite").partitionBy("p").options(**options).parquet(plain)
        assert (count(path), session.read.parquet(plain).count()) == (kept, kept), (mode, options)


def test_the_session_says_nothing_of_tables_without_partitions_and_of_operations(
    session: SparkSession, tmp_path: Path
) -> None:
    session.conf.set(OVERWRITE_MODE, "dynamic")
    plain, named = tmp_path / "plain", tmp_path / "named"
    save(rows(session), plain, partitionpath="")
    save(rows(session).where("false"), plain, "overwrite", partitionpath="")
    save(rows(session), named)
    save(rows(session, 0, 1), named, "overwrite", operation="insert_overwrite_table")
    assert (count(plain), count(named)) == (0, 1)


def test_the_data_source_alone_refuses_what_it_cannot_obey(spark: SparkSession, tmp_path: Path) -> None:
    unregister()
    session = spark.newSession()
    save(rows(session), tmp_path)
    session.conf.set(OVERWRITE_MODE, "dynamic")
    said = refusal(lambda: save(rows(session, 0, 1), tmp_path, "overwrite"))
    assert (said.error, "partitionOverwriteMode=dynamic does not reach" in said.text) == ("InvalidOptionError", True)
    assert count(tmp_path) == 30
    save(rows(session, 0, 1), tmp_path, "overwrite", **{"hoodie.datasource.overwrite.mode": "dynamic"})
    assert count(tmp_path) == 21


def test_settings_without_effect_are_said_once(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (
        ("spark.sql.files.maxRecordsPerFile", "7"),
        ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS"),
        ("spark.sql.parquet.compression.codec", "lz4"),
        ("spark.sql.parquet.writeLegacyFormat", "false"),
        ("spark.sql.files.ignoreMissingFiles", "true"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED"),
    ):
        session.conf.set(name, value)
    with caplog.at_level(logging.WARNING, "lakeformat.spark"):
        for first in (0, 10):
            save(rows(session, first, first + 10), tmp_path)
            session.read.format("lakehouse").load(str(tmp_path)).where("id = 1").collect()
    said = sorted(record.message.partition(" has no effect")[0] for record in caplog.records)
    assert said == [
        "spark.sql.files.ignoreMissingFiles=true",
        "spark.sql.files.maxRecordsPerFile=7",
        "spark.sql.parquet.compression.codec=lz4",
        "spark.sql.parquet.outputTimestampType=TIMESTAMP_MILLIS",
    ]


def test_other_rules_of_assignment_are_refused_in_sql(session: SparkSession, tmp_path: Path) -> None:
    save(rows(session), tmp_path)
    lakeformat.spark.view(session, "assigned", str(tmp_path))
    session.conf.set("spark.sql.storeAssignmentPolicy", "LEGACY")
    for text in ("insert into assigned values (1, 'p1')", "update assigned set p = 'p2' where id = 1"):
        with pytest.raises(InvalidOptionError, match="storeAssignmentPolicy=LEGACY is not for lakeformat"):
            lakeformat.spark.sql(session, text)
    session.conf.set("spark.sql.storeAssignmentPolicy", "ansi")
    lakeformat.spark.sql(session, "insert into assigned values (100, 'p1')")
    assert count(tmp_path) == 31


def test_a_session_that_shifts_int96_does_not_use_sparks_scan(session: SparkSession, tmp_path: Path) -> None:
    save(rows(session), tmp_path)
    session.conf.set("spark.sql.parquet.int96TimestampConversion", "true")
    frame = session.read.format("lakehouse").load(str(tmp_path))
    assert "FileScan" not in frame._jdf.queryExecution().executedPlan().toString()
    assert frame.where("id > 3").count() == 26
    with pytest.raises(lakeformat.InvalidInputError, match="via='native' cannot be had"):
        lakeformat.spark.read(session, str(tmp_path), via="native")


def test_the_default_source_may_be_ours(session: SparkSession, tmp_path: Path) -> None:
    session.conf.set("spark.sql.sources.default", "lakehouse")
    rows(session).write.options(**OPTIONS).mode("append").save(str(tmp_path))
    assert session.read.load(str(tmp_path)).where("id > 3").count() == count(tmp_path) - 4 == 26


@pytest.mark.parametrize("mode", ["ignore", "errorifexists"])
def test_a_first_save_that_failed_leaves_no_table_for_the_next(
    mode: str, session: SparkSession, tmp_path: Path
) -> None:
    fail = functions.udf(lambda _: 1 // 0, "long")
    for operation in ("upsert", "bulk_insert"):
        path = tmp_path / operation
        with pytest.raises(Exception, match="ZeroDivisionError"):
            save(rows(session).withColumn("id", fail("id")), path, mode, operation=operation)
        assert lakeformat.exists(path)
        save(rows(session), path, mode, operation=operation)
        assert count(path) == 30
    assert lakeformat.open(path).history()[0].operation == "bulk_insert"
    if mode == "ignore":
        save(rows(session, 50, 60), path, mode)
    else:
        with pytest.raises(InvalidOptionError, match="the save mode is errorifexists"):
            save(rows(session, 50, 60), path, mode)
    assert count(path) == 30


def test_an_empty_table_is_filled_with_its_own_settings(session: SparkSession, tmp_path: Path) -> None:
    lakeformat.create(tmp_path, a_schema(id="int64", p="string"), record_key="id", partition_by="p")
    with pytest.raises(InvalidOptionError, match="recordkey"):
        save(rows(session), tmp_path, "ignore", recordkey="p")
    save(rows(session), tmp_path, "ignore")
    assert count(tmp_path) == 30
