"""Functions in conditions: Spark itself judges the results, and every way to read a table gives the same rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from lakeformat import InvalidInputError
from lakeformat.predicate import Always, Not, bind, mask, parse_where
from lakeformat.spark import LakehouseTable, read
from lakeformat.spark.reads.predicate_to_column import split_condition
from tests.helpers.examples import examples
from tests.helpers.function_conditions import SCHEMA, condition, rows
from tests.helpers.spark_questions import FUNCTION_ZONES, PLAIN

pytestmark = pytest.mark.spark

ZONE = "spark.sql.session.timeZone"
#: Characters that got capital letters in Unicode 17, which Arrow knows and this Spark does not.
NEW = ("ɷ", "ɼ")
#: Characters of every script, those whose other case is more than one character, and a sigma at the end of a word.
CHARACTERS = [chr(code) for code in range(1, 0x2FFF) if chr(code) not in NEW] + [
    "ﬃ",
    "ﬓ",
    "𐐀",
    "AΣ",
    "ΣA",
    "AΣ b",
]


@pytest.fixture
def zoned(request: pytest.FixtureRequest, spark: SparkSession) -> tuple[SparkSession, str]:
    """Return a session with this time zone and the settings of the records."""
    session = spark.newSession()
    for key, value in {ZONE: request.param, **PLAIN}.items():
        session.conf.set(key, value)
    return session, request.param


def _judged(frame: DataFrame, texts: list[str]) -> list[list[Any] | PySparkException]:
    """Return the answers of Spark per condition; the error, if one row has no result."""
    try:
        found = frame.selectExpr(*(f"({text}) as c{at}" for at, text in enumerate(texts))).collect()
        return [[row[at] for row in found] for at in range(len(texts))]
    except PySparkException as error:
        if len(texts) == 1:
            return [error]
        half = len(texts) // 2
        return [*_judged(frame, texts[:half]), *_judged(frame, texts[half:])]


def _ours(text: str, table: pa.Table, zone: str) -> list[Any] | InvalidInputError | None:
    """Return our answers; the error, if one row has no result; None, if the condition is refused."""
    try:
        predicate = bind(parse_where(text), SCHEMA, zone=zone)
    except InvalidInputError:
        return None
    try:
        yes, no = mask(predicate, table).to_pylist(), mask(Not(predicate), table).to_pylist()
    except InvalidInputError as error:
        return error
    return [True if one else False if other else None for one, other in zip(yes, no, strict=True)]


@pytest.mark.nightly
@pytest.mark.parametrize("zoned", FUNCTION_ZONES, indirect=True)
def test_spark_gives_the_same_answers(zoned: tuple[SparkSession, str], tmp_path: Path) -> None:
    """`tests/predicate/test_spark_answers.py` asks fewer conditions, of Spark's record."""
    spark, zone = zoned
    chance = random.Random(zone)
    compared = 0
    for at in range(examples(9)):
        table = rows(chance)
        texts = [condition(chance) for _ in range(80)]
        answers = {text: answer for text in texts if (answer := _ours(text, table, zone)) is not None}
        pq.write_table(table, tmp_path / f"{at}.parquet")
        frame = spark.read.parquet(str(tmp_path / f"{at}.parquet"))
        right = [text for text, answer in answers.items() if isinstance(answer, list)]
        judged = dict(zip(right, _judged(frame, right), strict=True))
        assert {text: answers[text] for text in right} == judged
        for text in answers.keys() - set(right):
            assert isinstance(_judged(frame, [text])[0], PySparkException), text
        compared += len(answers)
    assert compared > examples(9) * 70


def test_case_of_every_character_is_that_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"t": CHARACTERS})
    pq.write_table(table, tmp_path / "t.parquet")
    theirs = spark.read.parquet(str(tmp_path / "t.parquet")).selectExpr("t", "lower(t) as low", "upper(t) as up")
    answers = theirs.toArrow()
    condition = bind(parse_where("lower(t) = low and upper(t) = up"), answers.schema)
    assert answers.filter(mask(Not(condition), answers)).column("t").to_pylist() == []
    assert answers.filter(mask(condition, answers)).num_rows == len(CHARACTERS)


#: Conditions that Spark evaluates in its scan, that lakeformat evaluates in tasks, and that become ranges.
MIXED = [
    "lower(t) like 'a%'", "year(at) = 2024", "hour(at) = 6 or i > 300", "i % 2 = 0 and j > 1 and upper(u) != 'X'",
    "coalesce(t, u) || 'x' > 'b' and cast(at as date) < '2024-06-01'",
    "case when flag then i else j end in (1, 2, null)",
    "array_contains(tags, 'a') and size(tags) > 1", "try_cast(t as int) = 12", "t rlike '^a|b$' or length(t) = 0",
    "m + n > 1 and not (s.a + 1 = 3)", "day + 1 = to_date(at) or last_day(day) = '2024-12-31'", "i > j", "day <= at",
    "nullif(i, 0) is null and contains(t, 'a') <=> true", "substring(s.t, -2) in ('2 ', '30', 'ue')", "m > i and d < f",
    "greatest(i, j) = 2 and least(m, n) < 0", "date_trunc('day', at) = '2024-03-10'", "1 / nullif(i, 0) < 0",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("functions")
    table = rows(random.Random(5), 200)
    table = table.append_column("id", pa.array(range(200)))
    logs = lakeformat.create(
        path / "logs", table.schema, record_key="id", partition_by="flag", table_type="MERGE_ON_READ"
    )
    logs.insert(table.slice(0, 150))
    logs.upsert(table.slice(100))
    lakeformat.create(path / "bases", table.schema, record_key="id", partition_by="j").insert(table)
    return path


@pytest.mark.parametrize("zoned", ["America/New_York"], indirect=True)
@pytest.mark.parametrize("name", ["bases", "logs"])
def test_every_read_path_gives_the_same_rows(zoned: tuple[SparkSession, str], folder: Path, name: str) -> None:
    spark, zone = zoned
    plain = lakeformat.open(folder / name)
    judge, found = read(spark, str(folder / name)), 0
    for where in MIXED:
        ids = sorted(plain.to_arrow(["id"], where=where, time_zone=zone).column("id").to_pylist())
        assert ids == sorted(row.id for row in judge.where(where).select("id").collect()), where
        assert ids == sorted(row.id for row in read(spark, str(folder / name), where=where).select("id").collect()), (
            where
        )
        found += 0 < len(ids) < 200
    assert found > len(MIXED) // 2
    for where in MIXED[:4]:
        frame = LakehouseTable.forPath(spark, str(folder / name)).read(columns=["id"], where=where)
        assert sorted(row.id for row in frame.collect()) == sorted(
            plain.to_arrow(["id"], where=where, time_zone=zone).column("id").to_pylist()
        )
        loaded = spark.read.format("lakehouse").option("where", where).load(str(folder / name))
        ids = sorted(plain.to_arrow(["id"], where=where, time_zone=zone).column("id").to_pylist())
        assert ids == sorted(row.id for row in loaded.select("id").collect()), where


def test_settings_of_the_session_change_no_row(spark: SparkSession, folder: Path) -> None:
    """ANSI mode off: Spark's own division would give null, its own sum would wrap."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.conf.set(ZONE, "Asia/Tokyo")
    path = str(folder / "bases")
    with pytest.raises(PySparkException, match="division by zero"):
        read(session, path, where="1 / i > 0").collect()
    where = "hour(at) = 6 and try_cast(t as int) is null"
    plain = lakeformat.open(path).to_arrow(["id"], where=where)
    found = read(session, path, where=where, time_zone="UTC").select("id").collect()
    assert sorted(row.id for row in found) == sorted(plain.column("id").to_pylist())


def test_spark_evaluates_what_no_setting_changes() -> None:
    def split(text: str) -> tuple[bool, bool]:
        theirs, ours = split_condition(bind(parse_where(text), SCHEMA))
        return theirs != Always(True), ours != Always(True)

    assert split("lower(t) = 'a' and i > 3 and (day < '2024-01-01' or length(t) > m)") == (True, False)
    assert split("i + 1 = 2") == (False, True)
    assert split("i > 3 and hour(at) = 2 and t || u = 'x'") == (True, True)
    assert split("case when i = 1 then cast(t as int) end = 1") == (False, True)
