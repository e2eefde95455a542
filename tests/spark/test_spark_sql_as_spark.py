"""``lakeformat.spark.sql`` against Spark itself: random statements leave the rows that a query of Spark returns."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakeformat
from lakeformat import InvalidInputError
from lakeformat.spark import LakehouseTable, sql, view

pytestmark = pytest.mark.spark

_NUMBER = count()
COLUMNS = "id long, part string, Name string, `order` int, x double, ts timestamp"
NAMES = ["id", "part", "Name", "order", "x", "ts"]
KINDS: dict[str, dict[str, Any]] = {
    "cow": {"recordkey": "id", "partitionpath": "part"},
    "mor": {"recordkey": "id", "table_type": "MERGE_ON_READ"},
    "no key": {},
}
_FLOATS = [0.0, -0.0, math.nan, 1.5, -2.5, 3e9, None]
_CONDITIONS = [
    "x > 0",
    "x = 0",
    "x <=> 0.0D",
    "isnan(x)",
    "not (x > 1)",
    "ts < '2024-01-01'",
    "ts < timestamp'2023-12-31 20:00:00'",
    "cast(ts as date) = date'2024-01-01'",
    "hour(ts) < 12",
    "`order` in (1, 3)",
    "ORDER not in (2, null)",
    "id % 3 = 0",
    "id = 7",
    "part <> 'b' and NAME is not null",
    "name like 'B%'",
    "Name = 'O\\'Hara'",
    "try_cast(Name as int) = 3",
    "id in (select id from {o} where y > 0)",
    "(select max(id) from {o}) > id",
    "length(Name) + id > 8",
]
_VALUES = {
    "x": ["x * 2", "-0.0D", "double('NaN')", "null", "`order` / 2", "if(x > 1, 2, 3)"],
    "`order`": ["cast(x as int)", "length(Name)", "`order` + 1", "2.5", "null"],
    "Name": ["upper(Name)", "string(ts)", "concat(part, Name)"],
    "ts": ["ts + interval 1 day", "timestamp'2024-03-01 12:00:00'", "cast('2024-02-29' as timestamp)"],
}


@pytest.fixture(params=["Asia/Tokyo", "America/Los_Angeles"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def start(random: Random) -> list[tuple[Any, ...]]:
    times = [dt.datetime(2023, 12, 31, hour, tzinfo=dt.timezone.utc) for hour in (2, 14, 20)] + [None]
    names = ["ann", "Bob", "", "O'Hara", "3", None]
    return [
        (
            at,
            random.choice("ab"),
            random.choice(names),
            random.choice([0, 1, 2, None]),
            random.choice(_FLOATS),
            random.choice(times),
        )
        for at in range(12)
    ]


def change(random: Random, t: str, o: str) -> tuple[str, str]:
    """Return a statement, and the query of Spark that returns the rows it must leave."""
    condition = random.choice(_CONDITIONS).replace("{o}", o)
    names = [f"`{name}`" for name in NAMES]
    if random.random() < 0.3:
        return f"delete from {t} where {condition}", f"select * from {t}_rows where not coalesce({condition}, false)"
    if random.random() < 0.5:
        name = random.choice(list(_VALUES))
        value = random.choice(_VALUES[name])
        plain = name.strip("`")
        chosen = [
            f"if({condition}, cast({value} as {_KIND[plain]}), {each})" if each.strip("`") == plain else each
            for each in names
        ]
        return f"update {t} set {name} = {value} where {condition}", f"select {', '.join(chosen)} from {t}_rows"
    joined = f"{t}_rows t full join {o} s on t.id = s.id"
    x = "case when t.id is not null and s.id is not null then s.y when t.id is null then s.y else t.x end"
    return (
        f"merge into {t} t using {o} s on t.id = s.id when matched and s.y > t.x then delete "
        "when matched then update set x = s.y when not matched then insert (id, part, x) values (s.id, 'c', s.y) "
        "when not matched by source and t.id % 5 = 0 then delete",
        f"select coalesce(t.id, s.id), if(t.id is null, 'c', t.part), t.Name, t.`order`, {x}, t.ts from {joined} "
        "where not coalesce(s.y > t.x, false) and not (s.id is null and t.id % 5 = 0)",
    )


_KIND = {"x": "double", "order": "int", "Name": "string", "ts": "timestamp"}


def rows_as_text(rows: list[Any]) -> list[str]:
    return sorted(repr(tuple(row)) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_statements_equal_spark(kind: str, zone: str, spark: SparkSession, tmp_path: Path) -> None:
    random = Random(f"{kind} {zone}")
    t, o, path = f"t{next(_NUMBER)}_as_spark", f"o{next(_NUMBER)}_as_spark", str(tmp_path / "t")
    spark.createDataFrame(start(random), COLUMNS).createOrReplaceTempView(f"{t}_rows")
    LakehouseTable.forPath(spark, path, **KINDS[kind]).bulk_insert(spark.table(f"{t}_rows"))
    view(spark, t, path)
    others = [(at, random.choice(_FLOATS)) for at in random.sample(range(18), 8)]
    spark.createDataFrame(others, "id long, y double").createOrReplaceTempView(o)
    for _ in range(6):
        text, query = change(random, t, o)
        try:
            wanted = rows_as_text(spark.sql(query).collect())
        except Exception:  # Spark refuses a value.
            with pytest.raises(Exception, match=r"CAST|OVERFLOW|cast|fit"):
                sql(spark, text)
            continue
        sql(spark, text)
        assert rows_as_text(sql(spark, f"select * from {t}").collect()) == wanted, text
        kept = spark.createDataFrame(spark.sql(query).collect(), COLUMNS)
        kept.createOrReplaceTempView(f"{t}_rows")


CASES = ["ts < '2024-01-01'", "ts < '2024-01-01' and abs(id) > 0"]


def test_a_delete_takes_the_rows_that_a_select_shows(zone: str, spark: SparkSession, tmp_path: Path) -> None:
    for condition in CASES:
        name, path = f"t{next(_NUMBER)}_zones", str(tmp_path / f"t{next(_NUMBER)}")
        times = [dt.datetime(2023, 12, 31, hour, tzinfo=dt.timezone.utc) for hour in (14, 20, 23)]
        rows = spark.createDataFrame(list(enumerate(times, 1)), "id long, ts timestamp")
        LakehouseTable.forPath(spark, path, recordkey="id").insert(rows)
        view(spark, name, path)
        ids = {row.id for row in sql(spark, f"select id from {name} where {condition}").collect()}
        assert ids == ({1} if zone == "Asia/Tokyo" else {1, 2, 3})
        sql(spark, f"delete from {name} where {condition}")
        assert set(lakeformat.open(path).to_arrow()["id"].to_pylist()) == {1, 2, 3} - ids


def test_each_row_is_taken_by_one_clause_and_values_fit(spark: SparkSession, tmp_path: Path) -> None:
    """rand() is computed once for each row, and a value that does not fit its column is refused."""
    name, path = f"t{next(_NUMBER)}_once", str(tmp_path / "t")
    rows = spark.createDataFrame([(at, 2.0, at) for at in range(40)], "id long, x double, n int")
    LakehouseTable.forPath(spark, path, recordkey="id").insert(rows)
    view(spark, name, path)
    sql(
        spark,
        f"merge into {name} t using (select id as k from {name}) s on t.id = s.k "
        "when matched and rand() < 0.5 then update set x = 3, n = 3 when matched then update set x = 4, n = 4",
    )
    found = {(row["x"], row["n"]) for row in lakeformat.open(path).to_arrow().to_pylist()}
    assert found == {(3.0, 3), (4.0, 4)}
    before = lakeformat.open(path).to_arrow()
    for value in ("x * 1e30", "cast('abc' as int)"):
        with pytest.raises(Exception, match=r"CAST|OVERFLOW"):
            sql(spark, f"update {name} set n = {value}")
    with pytest.raises(InvalidInputError, match="more than once"):
        sql(spark, f"merge into {name} t using {name} s on t.n = s.n when matched then update set x = s.x")
    assert lakeformat.open(path).to_arrow().equals(before)


def test_a_delete_by_condition_sees_log_files(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that a log file deleted stay deleted when tasks delete more rows."""
    path = str(tmp_path / "t")
    table = LakehouseTable.forPath(spark, path, recordkey="id", table_type="MERGE_ON_READ")
    table.bulk_insert(spark.createDataFrame([(at, "a") for at in range(6)], "id long, v string"))
    lakeformat.open(path).delete(pa.table({"id": [1, 2]}))
    lakeformat.open(path).upsert(pa.table({"id": [3], "v": ["b"]}))
    table.delete(where="id = 4")
    table.update({"v": "c"}, where="v = 'b'")
    found = {row["id"]: row["v"] for row in lakeformat.open(path).to_arrow().to_pylist()}
    assert found == {0: "a", 3: "c", 5: "a"}
