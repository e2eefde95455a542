"""read(via="native"): Spark's own Parquet scan returns the rows that the data source returns."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
from lakeformat import InvalidInputError, SkippingError
from lakeformat.spark import LakehouseTable
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.lakehouse import commits, read, refusal, write
from tests.helpers.pushed_filters import CONDITIONS, SCHEMA
from tests.helpers.pushed_filters import rows as typed_rows
from tests.helpers.thrift_footer import MAX_VALUE, Struct, put_bytes, with_statistics

pytestmark = pytest.mark.spark

COLUMNS = "id long, part string, ts long, x double"


def native(
    session: SparkSession,
    path: Path,
    columns: list[str] | None = None,
    where: str | None = None,
    as_of: str | None = None,
    **options: Any,
) -> DataFrame:
    table = LakehouseTable.forPath(session, str(path), **{"meta_columns": True, **options})
    return table.read(columns, where=where, as_of=as_of, via="native")


def lines(frame: DataFrame) -> list[str]:
    """Return the rows as sorted text: then NaN equals NaN, and columns of all types have an order."""
    return sorted(map(str, frame.collect()))


@pytest.fixture(scope="module")
def typed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a table with columns of every type, with nulls, NaN and both zeros, in four files."""
    path = tmp_path_factory.mktemp("native") / "t"
    frame = spark.createDataFrame(typed_rows(), SCHEMA).repartition("part")
    frame.write.format("lakehouse").options(recordkey="id", partitionpath="part").mode("append").save(str(path))
    return path


@pytest.mark.parametrize("name", names("hudi_v6"))
def test_tables_of_hudi_read_as_through_the_source(name: str, spark: SparkSession, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    ours, source = native(spark, path), read(spark, path)
    assert ours.schema == source.schema
    assert lines(ours) == lines(source)
    assert ours.count() == source.count()


def test_every_type_reads_as_through_the_source(spark: SparkSession, typed: Path) -> None:
    assert native(spark, typed).schema == read(spark, typed).schema
    assert lines(native(spark, typed)) == lines(read(spark, typed))


@pytest.fixture
def far_zone(spark: SparkSession) -> Iterator[None]:
    """Set a session time zone in which literals mean other moments than in the table."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.usefixtures("far_zone")
def test_conditions_select_the_rows_that_plain_python_selects(spark: SparkSession, typed: Path) -> None:
    table, scanned = lakeformat.open(typed), LakehouseTable.forPath(spark, str(typed))
    wanted, frames = {}, []
    for at, text in enumerate(CONDITIONS):
        try:
            wanted[text] = sorted(table.to_arrow(["id"], where=text, time_zone="Asia/Kathmandu")["id"].to_pylist())
        except InvalidInputError:
            with pytest.raises(InvalidInputError):
                scanned.read(where=text, via="native")
        else:
            frames.append(scanned.read(["id"], where=text, via="native").select(functions.lit(at).alias("at"), "id"))
    found = reduce(DataFrame.union, frames).collect()
    assert {text: sorted(r.id for r in found if r.at == CONDITIONS.index(text)) for text in wanted} == wanted
    assert len(wanted) > len(CONDITIONS) * 2 // 3


def test_url_names_the_same_folder_in_spark_and_lakeformat(spark: SparkSession, tmp_path: Path) -> None:
    url, rows = f"file://{tmp_path}/a%20b#c?d", spark.createDataFrame([(1, "p", 2, 0.5)], COLUMNS)
    rows.write.parquet(f"{url}/plain")
    rows.write.format("lakehouse").options(recordkey="id").mode("append").save(f"{url}/table")
    assert {file.name for file in (tmp_path / "a%20b#c?d").iterdir()} == {"plain", "table"}
    source = spark.read.format("lakehouse").load(f"{url}/table")
    ours = LakehouseTable.forPath(spark, f"{url}/table").read(meta_columns=True, via="native")
    assert lines(ours) == lines(source)
    assert lines(ours.select(rows.columns)) == lines(rows)


def test_native_read_takes_columns_filters_and_instants(spark: SparkSession, tmp_path: Path) -> None:
    write(
        spark.createDataFrame([(n, "a" if n < 5 else "b", 1, n / 2) for n in range(10)], COLUMNS),
        tmp_path,
    )
    write(spark.createDataFrame([(3, "a", 2, None)], COLUMNS), tmp_path)
    frame = native(spark, tmp_path, ["x", "ID"], "part = 'a' and id > 2")
    assert frame.columns == ["x", "id"]
    assert sorted(map(tuple, frame.collect()), key=lambda row: row[1]) == [(None, 3), (2.0, 4)]
    assert len(frame.inputFiles()) == 1
    assert native(spark, tmp_path, meta_columns=False).columns == ["id", "part", "ts", "x"]
    assert native(spark, tmp_path, ["id"], "x is null", commits(tmp_path)[0]).count() == 0
    assert native(spark, tmp_path, None, "x is null").count() == 1
    assert native(spark, tmp_path, ["id"], "id > 100").collect() == []
    with pytest.raises(InvalidInputError, match="did you mean 'part'"):
        native(spark, tmp_path, ["prat"])


def test_folder_names_make_no_columns_and_no_patterns(spark: SparkSession, tmp_path: Path) -> None:
    options = {
        "recordkey": "id",
        "partitionpath": "month,place",
        "hoodie.datasource.write.hive_style_partitioning": True,
    }
    places = ["a[1]", "*", "{x,y}", "5% off", "a b", "café:1", "?", "7"]
    rows = [(n, n % 3, place) for n, place in enumerate(places)]
    table = LakehouseTable.forPath(spark, str(tmp_path / "t [0]"), **options)
    table.bulk_insert(spark.createDataFrame(rows, "id long, month int, place string"))
    assert sorted(map(tuple, table.read(["id", "month", "place"], via="native").collect())) == rows
    assert (
        sorted(map(tuple, table.read(["id", "month", "place"], where="month = 1", via="native").collect()))
        == rows[1::3]
    )
    assert table.read(via="native").schema["month"].dataType.simpleString() == "int"


OLD = {
    "id": pa.array([1, 2], pa.int64()),
    "i": pa.array([1, None], pa.int32()),
    "f": pa.array([1.5, None], pa.float32()),
    "d": pa.array([3, 4], pa.int32()),
    "m": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
    "s": pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])),
    "l": pa.array([[1, None], None], pa.list_(pa.int32())),
    "k": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
}
NEW = {
    "id": pa.array([3, 4], pa.int64()),
    "i": pa.array([2**40, None], pa.int64()),
    "f": pa.array([0.1, None], pa.float64()),
    "d": pa.array([3.5, 4]),
    "m": pa.array([Decimal("123456.50"), None], pa.decimal128(20, 2)),
    "s": pa.array([{"a": 2**40, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
    "l": pa.array([[2**40], None], pa.list_(pa.int64())),
    "k": pa.array([[("k", 2**40)], None], pa.map_(pa.string(), pa.int64())),
    "late": pa.array(["x", None]),
}


@pytest.fixture
def evolved(tmp_path: Path) -> Path:
    """Create a table whose second commit widened every column and added one."""
    settings = {"hoodie.write.set.null.for.missing.columns": True, "hoodie.parquet.small.file.limit": 0}
    table = lakeformat.create(tmp_path / "t", pa.table(OLD).schema, record_key="id", **settings)
    table.insert(pa.table(OLD))
    table.insert(pa.table(NEW))
    return tmp_path / "t"


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_native_read_widens_and_adds_columns(vectorized: str, spark: SparkSession, evolved: Path) -> None:
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        frame = native(spark, evolved)
        assert len(frame.inputFiles()) == 2
        assert lines(frame) == lines(read(spark, evolved))
        assert sorted(row.id for row in native(spark, evolved, ["id"], "late is null and not d > 3").collect()) == [1]
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


@pytest.fixture
def unwidened(evolved: Path) -> Path:
    """Return a table with a column that Hudi widens from long to double.

    The first commit has left the timeline, so only footers have the stored type.
    """
    first = commits(evolved)[0]
    (old,) = evolved.glob(f"*_{first}.parquet")
    stored = pq.read_table(old)
    at = stored.schema.get_field_index("d")
    pq.write_table(stored.set_column(at, "d", stored["d"].cast(pa.int64())), old)
    for file in (evolved / ".hoodie").glob(f"{first}.*"):
        file.unlink()
    return evolved


def test_files_that_spark_cannot_widen_are_read_by_us(spark: SparkSession, unwidened: Path) -> None:
    frame = native(spark, unwidened)
    assert len(frame.inputFiles()) == 1
    assert lines(frame) == lines(read(spark, unwidened))
    assert sorted((row.id, row.d) for row in native(spark, unwidened, ["id", "d"], "d < 3.2").collect()) == [(1, 3.0)]
    assert native(spark, unwidened).count() == 4


def test_native_read_keeps_its_files_when_a_plan_completes(spark: SparkSession, unwidened: Path) -> None:
    table = lakeformat.open(unwidened, **{"hoodie.parquet.small.file.limit": 0})
    planned = table.schedule_clustering("id")
    table.insert(pa.table(NEW).slice(0, 1).set_column(0, "id", pa.array([5], pa.int64())))
    frame = native(spark, unwidened, ["id"])
    table.run_clustering(planned)
    assert sorted(row.id for row in frame.collect()) == [1, 2, 3, 4, 5]


NAN = float("nan")


def test_nan_is_found_though_spark_skips_by_statistics_that_leave_it_out(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id long, d double, s struct<f: float, in: struct<d: double, t: string>>"
    rows = [(1, NAN, (NAN, (NAN, "x"))), (2, 1.0, (1.0, (1.0, None))), (3, -0.0, (2.0, None)), (4, None, None)]
    table = LakehouseTable.forPath(spark, str(tmp_path), recordkey="id")
    table.bulk_insert(spark.createDataFrame(rows, schema).coalesce(1))
    frame = table.read(meta_columns=True, via="native")
    assert lines(frame) == lines(read(spark, tmp_path))
    for condition in ("d > 100", "not d <= 100", "s.f >= 100", "s.in.d > 1.5D", "d != 1D and not d < 5D"):
        assert [row.id for row in frame.where(condition).collect()] == [1], condition
        assert [row.id for row in table.read(where=condition, via="native").collect()] == [1], condition
    assert [row.id for row in frame.where("s.in.t is null and d < 100").collect()] == [2, 3]


@pytest.mark.slow
def test_verified_reads_fail_in_the_task_that_finds_a_loss(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.createDataFrame([(n, "a", 1, n / 2) for n in range(10)], COLUMNS), tmp_path)
    assert read(spark, tmp_path, where="x > 1", verify=True).count() == 7
    assert native(spark, tmp_path, None, "x > 1", verify=True).count() == 7

    def lies(path: str, statistics: Struct) -> None:
        if path == "x":
            put_bytes(statistics, MAX_VALUE, bytes(8))

    (file,) = tmp_path.rglob("a/*.parquet")
    file.write_bytes(with_statistics(file.read_bytes(), lies))
    shutil.rmtree(tmp_path / ".hoodie" / ".lakeformat" / "index", ignore_errors=True)
    refused = refusal(read(spark, tmp_path, where="x < -1 or x = 2", verify=True).collect)
    assert refused.error == "SkippingError"
    assert f"a/{file.name}" in refused.text
    with pytest.raises(SkippingError, match=file.name):
        native(spark, tmp_path, None, "x < -1 or x = 2", verify=True)


@pytest.fixture
def careless(spark: SparkSession) -> Iterator[None]:
    """Let the session skip files that it cannot read."""
    settings = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    for setting in settings:
        spark.conf.set(setting, "true")
    yield
    for setting in settings:
        spark.conf.unset(setting)


@pytest.mark.usefixtures("careless")
def test_a_file_that_cannot_be_read_is_never_left_out(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.createDataFrame([(n, "a" if n < 5 else "b", 1, n / 2) for n in range(10)], COLUMNS), tmp_path)
    (file,) = tmp_path.glob("a/*.parquet")
    whole = file.read_bytes()
    file.write_bytes(b"?" * len(whole))
    damaged = native(spark, tmp_path, ["id"])
    with pytest.raises(Exception, match=file.name):
        damaged.collect()
    file.write_bytes(whole)
    missing = native(spark, tmp_path, ["id"])
    file.unlink()
    with pytest.raises(Exception, match=file.name):
        missing.collect()
