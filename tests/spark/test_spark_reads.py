"""Reading through Spark: options, sessions, views, user schemas, time travel, real Hudi tables."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from lakeformat import InvalidOptionError
from lakeformat.spark import LakehouseTable
from tests.helpers.commit_files import edit_commit
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.lakehouse import FLIGHT_COLUMNS, commits, contents, flights, read, write

pytestmark = pytest.mark.spark

META = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]
EARLY = [(number, f"p{number % 3}", 10, number / 2) for number in range(30)]
LATE = [(number, f"p{number % 3}", 20, None) for number in range(20, 40)]
NOW = sorted([*EARLY[:20], *LATE], key=lambda row: row[0])


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a table of `EARLY`, then upsert `LATE`. It then holds `NOW`."""
    path = tmp_path_factory.mktemp("reads") / "t"
    write(flights(spark, EARLY), path)
    write(flights(spark, LATE), path)
    return path


@pytest.fixture(scope="module")
def dated(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same table with its two instants moved to 2024-05-01 08:30:00.123 and 2024-05-02 00:00:00.000."""
    path = tmp_path_factory.mktemp("dated") / "t"
    shutil.copytree(table, path)
    for old, new in zip(commits(table), ("20240501083000123", "20240502000000000"), strict=True):
        for file in sorted(path.rglob(f"*{old}*")):
            file.rename(file.with_name(file.name.replace(old, new)))
        for file in (path / ".hoodie").glob("*.commit"):
            edit_commit(file, lambda text, old=old, new=new: text.replace(old, new))
    return path


def sort_by_key(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: row[0])


def test_both_sessions_return_all_columns_meta_columns_first(session: SparkSession, table: Path) -> None:
    frame = read(session, table)
    assert frame.columns == [*META, "id", "part", "ts", "x"]
    assert all(field.nullable for field in frame.schema)
    rows = sort_by_key([tuple(row) for row in frame.collect()])
    assert [row[5:] for row in sorted(rows, key=lambda row: row[5])] == NOW
    early, late = commits(table)
    assert {row[5]: row[0] for row in rows} == {id_: late if ts == 20 else early for id_, _, ts, _ in NOW}
    assert all(row[2:4] == (str(row[5]), row[6]) for row in rows)


@pytest.mark.parametrize(
    ("as_of", "rows"),
    [
        ("20240501083000123", EARLY),
        ("20240501235959", EARLY),
        ("2024-05-01 08:30:00.123", EARLY),
        ("2024-05-01 08:30:00", EARLY),
        ("2024-05-01 08:30:00.122", []),
        ("2024-05-01", []),
        ("2024-05-02", NOW),
        ("2024-05-01 23:59:59.999", EARLY),
        ("99990101000000", NOW),
        (dt.datetime(2024, 5, 1, 8, 30, 0, 123_000), EARLY),
        (dt.datetime(2024, 5, 1, 10, 30, 0, 122_000, dt.timezone(dt.timedelta(hours=2))), []),
    ],
)
def test_as_of_reads_the_rows_of_the_instant(as_of: Any, rows: list[object], spark: SparkSession, dated: Path) -> None:
    frame = read(spark, dated, meta_columns=False, **{"as.of.instant": as_of})
    assert sort_by_key([tuple(row) for row in frame.collect()]) == rows
    native = LakehouseTable.forPath(spark, str(dated), meta_columns=False).read(as_of=as_of, via="native")
    assert sort_by_key([tuple(row) for row in native.collect()]) == rows


def test_version_numbers_read_the_rows_of_the_commit(spark: SparkSession, dated: Path) -> None:
    table = LakehouseTable.forPath(spark, str(dated), meta_columns=False)
    for version, rows in ((0, EARLY), (len(table.history()) - 1, NOW)):
        frames = {
            "load": read(spark, dated, meta_columns=False, versionAsOf=version),
            "load by time": read(
                spark, dated, meta_columns=False, timestampAsOf=table.history()[-1 - version].instant_time
            ),
            "read": table.read(as_of=version),
            "read by its source": table.read(as_of=version, via="source"),
            "spark.read": lakeformat.spark.read(spark, str(dated), as_of=version),
            "spark.read by option": lakeformat.spark.read(spark, str(dated), versionAsOf=version),
        }
        assert {
            name: sort_by_key([tuple(row) for row in frame.collect()]) for name, frame in frames.items()
        } == dict.fromkeys(frames, rows)
    with pytest.raises(Exception, match=r"has no version 99; it has versions 0 to"):
        read(spark, dated, versionAsOf=99).collect()


def test_as_of_value_that_is_not_an_instant_is_refused(spark: SparkSession, dated: Path) -> None:
    for given in ("", False):
        with pytest.raises(Exception, match="is not an instant; give a datetime"):
            read(spark, dated, **{"as.of.instant": given})
        with pytest.raises(InvalidOptionError, match="is not an instant; give a datetime"):
            LakehouseTable.forPath(spark, str(dated)).read(as_of=given, via="native")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "columns", "ids"),
    [
        ({"where": "id < 3"}, [*META, "id", "part", "ts", "x"], {0, 1, 2}),
        ({"where": "part = 'p1' and x is null", "columns": "id"}, ["id"], {22, 25, 28, 31, 34, 37}),
        ({"columns": "x, id ,_hoodie_file_name", "where": "id=7"}, ["x", "id", "_hoodie_file_name"], {7}),
        ({"where": "_hoodie_record_key in ('1', '39')", "meta_columns": "false"}, ["id", "part", "ts", "x"], {1, 39}),
        ({"where": "ts > 20", "columns": "id"}, ["id"], set()),
        ({"columns": "ID", "where": "Part = 'p0' AND Id <= 3"}, ["id"], {0, 3}),
    ],
)
def test_where_and_columns_select_rows_and_columns(
    options: dict[str, str], columns: list[str], ids: set[int], spark: SparkSession, table: Path
) -> None:
    frame = read(spark, table, **options)
    assert frame.columns == columns
    assert {row.id for row in frame.collect()} == ids
    assert frame.count() == len(ids)


def test_options_and_filters_of_the_frame_add_up(session: SparkSession, table: Path) -> None:
    frame = read(session, table, where="id >= 10", columns="id, ts").where("ts = 10 and id % 2 = 0")
    assert sorted(row.id for row in frame.select("id").collect()) == [10, 12, 14, 16, 18]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "row"),
    [
        ("id long", (7,)),
        ("x double, id long", (3.5, 7)),
        ("ts long, _hoodie_partition_path string, id long", (10, "p1", 7)),
        (f"{FLIGHT_COLUMNS}", (7, "p1", 10, 3.5)),
    ],
)
def test_a_users_schema_prunes_and_reorders(
    schema: str, row: tuple[object, ...], registered: SparkSession, table: Path
) -> None:
    frame = registered.read.format("lakehouse").schema(schema).load(str(table))
    assert frame.count() == len(NOW)
    assert [tuple(found) for found in frame.where("id = 7").collect()] == [row]


def test_a_users_schema_widens(registered: SparkSession, tmp_path: Path) -> None:
    narrow = "id int, f float, d decimal(5,2), s struct<a: int, b: string>, l array<int>"
    frame = registered.createDataFrame([(7, 1.5, Decimal("2.25"), (1, "x"), [1, None])], narrow)
    frame.write.format("lakehouse").option("recordkey", "id").mode("append").save(str(tmp_path))
    assert read(registered, tmp_path, meta_columns=False).schema == frame.schema
    wider = "l array<long>, id long, f double, d decimal(9,2), s struct<a: long, b: string>"
    (row,) = registered.read.format("lakehouse").schema(wider).load(str(tmp_path)).collect()
    assert tuple(row) == ([1, None], 7, 1.5, Decimal("2.25"), (1, "x"))


def by_sql(session: SparkSession, path: Path) -> DataFrame:
    session.sql(f"CREATE OR REPLACE TEMP VIEW v USING lakehouse OPTIONS (path '{path}', meta_columns 'false')")
    return session.sql("SELECT * FROM v WHERE id BETWEEN 18 AND 21")


def by_temp_view(session: SparkSession, path: Path) -> DataFrame:
    read(session, path, meta_columns=False).createOrReplaceTempView("w")
    return session.sql("SELECT * FROM w WHERE id >= 18 AND id <= 21")


@pytest.mark.parametrize("view", [by_sql, by_temp_view])
def test_view_reads_the_newest_rows(
    view: Callable[[SparkSession, Path], DataFrame], session: SparkSession, table: Path
) -> None:
    assert contents_of(view(session, table)) == NOW[18:22]


def contents_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return sort_by_key([tuple(row) for row in frame.collect()])


def test_joins_and_aggregates_over_two_reads(registered: SparkSession, table: Path) -> None:
    then = read(registered, table, columns="id,ts", **{"as.of.instant": commits(table)[0]})
    now = read(registered, table, columns="id,ts")
    changed = now.alias("n").join(then.alias("t"), "id").where("n.ts > t.ts").count()
    assert changed == len({row[0] for row in EARLY} & {row[0] for row in LATE})


def test_read_is_stable_under_a_later_write(spark: SparkSession, tmp_path: Path) -> None:
    write(flights(spark, EARLY), tmp_path)
    frame = read(spark, tmp_path, meta_columns=False)
    assert frame.count() == len(EARLY)
    write(flights(spark, LATE), tmp_path)
    assert contents(spark, tmp_path) == contents_of(read(spark, tmp_path, meta_columns=False))
    assert len(contents(spark, tmp_path)) == len(NOW)


@pytest.mark.parametrize("name", names("hudi_v6"))
def test_tables_of_hudi_read_as_in_plain_python(name: str, spark: SparkSession, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    ours = lakeformat.open(path).to_arrow(meta_columns=True)
    theirs = read(spark, path).toArrow()
    assert theirs.schema.names == ours.schema.names
    order = [("_hoodie_partition_path", "ascending"), ("_hoodie_record_key", "ascending")]
    assert plain(theirs.sort_by(order)) == plain(ours.sort_by(order))


def plain(table: pa.Table) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = table.to_pylist(maps_as_pydicts="strict")
    return rows
