"""Spark's own scan of base files with log files: without the replaced rows, beside the merged rows of tasks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
from lakeformat import Table
from lakeformat.errors import UnsupportedTableError
from lakeformat.read.plan import SlicePart
from lakeformat.read.query import readable_schema
from lakeformat.spark import read
from lakeformat.spark.reads.replaced_bits import find_bits
from tests.helpers.counting import CountingStorage
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.read_paths import SETTINGS
from tests.helpers.tables import a_schema, a_table

pytestmark = pytest.mark.spark

#: So many rows that the log files are smaller than the base files.
ROWS = 2_000
NAN = float("nan")
SCHEMA = a_schema(
    id="string",
    ts="int64",
    p="string",
    v="int64",
    x="float64",
    t="string",
    s=pa.struct([("a", pa.int64()), ("f", pa.float32())]),
)
PARTIAL = {"hoodie.datasource.write.payload.class": "OverwriteNonDefaultsWithLatestAvroPayload"}
#: Name -> options of the table. The rows have late ordering values, so base rows win where these decide.
KINDS: dict[str, dict[str, Any]] = {
    "event time": {"ordering": "ts"},
    "commit time": {},
    "event time, layout 1": {"ordering": "ts", "version": 6},
    "commit time, version 8": {"version": 8},
    "partial": {"ordering": "ts", **PARTIAL},
    "partial, layout 1": {"version": 6, "ordering": "ts", **PARTIAL},
    "buckets": {"ordering": "ts", "index": "BUCKET", "hoodie.bucket.index.num.buckets": 2},
}
#: The kinds that `make test-slow` looks at; `make nightly` looks at all.
QUICK = ("event time, layout 1", "partial")
CONDITIONS = (
    "v > 1990", "v = 7", "x = 0", "x > 5", "x > 100000", "x is null", "t like 'new%'", "p = 'b'", "not (v <= 1900)",
    "s.a = 5", "s.f >= 1", "id in ('k0007', 'n1', 'k0014')", "p = 'a' and v > 50 or t is null",
    "_hoodie_commit_seqno is null", "ts < 10",
)  # fmt: skip


def some_rows(numbers: Iterable[int], ts: int, shift: int, text: str) -> pa.Table:
    odd = [NAN, -0.0, 0.0, None, 0.5]
    listed = [
        {
            "id": f"k{at:04}",
            "ts": ts + at % 3 - 1,
            "p": "ab"[at % 2],
            "v": at + shift,
            "x": odd[(at + shift) % 5] if at % 4 else float(at),
            "t": None if at % 11 == 0 else f"{text}{at}",
            "s": None if at % 7 == 0 else {"a": at, "f": at / 8},
        }
        for at in numbers
    ]
    return pa.Table.from_pylist(listed, SCHEMA)


def logged_table(path: Path, **options: Any) -> Table:
    """Create a table of two file groups with log files, and one partition without log files."""
    few = {"lakeformat.parquet.row.group.rows": 500, "hoodie.compact.inline": False}
    table = a_table(path, schema=SCHEMA, merge_on_read=True, partition_by="p", **few, **options)
    table.bulk_insert(some_rows(range(ROWS), 10, 0, "old"))
    chosen = random.Random(7)
    for step in range(3):
        table.upsert(some_rows(sorted(chosen.sample(range(ROWS), 6)), 9 + step, 10_000 * step, "new"))
        table.delete(some_rows(chosen.sample(range(ROWS), 3), 50, 0, "").select(["id", "p"]))
    table.upsert(some_rows([ROWS, ROWS + 1], 1, 50_000, "more"))
    return table


def lines(frame: DataFrame | pa.Table) -> Counter[str]:
    """Return the rows as texts, which are equal for NaN and tell -0.0 from 0.0."""
    rows = frame.to_pylist() if isinstance(frame, pa.Table) else [row.asDict(True) for row in frame.collect()]
    return Counter(map(repr, rows))


def is_scanned(frame: DataFrame) -> bool:
    """Tell whether Spark scans base files that have log files: its plan then looks up replaced rows."""
    return "bit_get" in frame._jdf.queryExecution().toString()


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.nightly) for kind in KINDS],
)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return logged_table(tmp_path_factory.mktemp("mor") / "t", **KINDS[request.param])


def test_rows_and_conditions_are_those_of_plain_python(spark: SparkSession, table: Table) -> None:
    path = table.context.storage.location
    frame, source = read(spark, path, meta_columns=True), read(spark, path, meta_columns=True, via="source")
    assert is_scanned(frame)
    assert frame.schema == source.schema
    assert lines(frame) == lines(source) == lines(table.read(meta_columns=True).to_arrow())
    assert frame.count() == table.count()
    frame.createOrReplaceTempView("logged")
    for read_again in (False, True):
        frames = []
        for at, text in enumerate(CONDITIONS):
            by_view = spark.sql(f"select * from logged where {text}")  # noqa: S608
            some = read(spark, path, where=text, meta_columns=True) if read_again and at % 3 == 0 else by_view
            frames.append(some.select(functions.lit(at), "id"))
        found = Counter(map(tuple, reduce(DataFrame.union, frames).collect()))
        wanted = {
            (at, key): 1
            for at, text in enumerate(CONDITIONS)
            for key in table.to_arrow(["id"], where=text)["id"].to_pylist()
        }
        assert found == wanted


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return logged_table(tmp_path_factory.mktemp("mor") / "one [1] é", ordering="ts")


@pytest.fixture(scope="module")
def frame(spark: SparkSession, one: Table) -> DataFrame:
    return read(spark, one.context.storage.location)


def python_steps(frame: DataFrame) -> int:
    """Return how many steps of a query of the frame are tasks of lakeformat. Each of them reads the log files once."""
    return str(frame._jdf.queryExecution().optimizedPlan().treeString()).count("MapInArrow")


def test_a_query_reads_log_files_once_if_they_have_row_numbers(spark: SparkSession, tmp_path: Path) -> None:
    table = logged_table(tmp_path / "t")
    frame = read(spark, tmp_path / "t")
    assert is_scanned(frame)
    assert python_steps(frame) == 1
    table.upsert(some_rows([1, 2], 0, 1, "again"))
    assert python_steps(read(spark, tmp_path / "t")) == 1
    assert lines(read(spark, tmp_path / "t")) == lines(table.to_arrow())


def test_tasks_find_the_replaced_rows_where_base_rows_may_win(spark: SparkSession, tmp_path: Path) -> None:
    """Only one of the two file groups has a late row, so tasks find the replaced rows of that one alone."""
    few = {"lakeformat.parquet.row.group.rows": 500, "hoodie.compact.inline": False}
    table = a_table(tmp_path / "t", schema=SCHEMA, merge_on_read=True, partition_by="p", ordering="ts", **few)
    table.bulk_insert(some_rows(range(ROWS), 10, 0, "old"))
    table.upsert(some_rows([1, 3, 4], 20, 1, "new"))
    assert python_steps(read(spark, tmp_path / "t")) == 1
    table.upsert(some_rows([5, 7], 1, 1, "late"))
    frame = read(spark, tmp_path / "t")
    assert python_steps(frame) == 2
    assert lines(frame) == lines(table.to_arrow())


def test_log_files_are_read_once_for_all_frames_of_a_snapshot() -> None:
    storage = CountingStorage()
    table = a_table(storage, schema=SCHEMA, merge_on_read=True, partition_by="p", **{"hoodie.compact.inline": False})
    table.bulk_insert(some_rows(range(ROWS), 10, 0, "old"))
    table.upsert(some_rows([1, 2, 3], 10, 0, "new"))

    def find(*, reads: bool) -> list[list[int]]:
        snapshot = table.snapshot()
        slices = [SlicePart(piece, snapshot.merge_rules(piece)) for piece in snapshot.each_slice() if piece.logs]
        table_columns = readable_schema(snapshot.columns(storage.location), meta_columns=True)
        before = storage.bytes_read
        found = find_bits(storage, slices, table_columns)
        assert (storage.bytes_read > before) is reads
        return [words.tolist() for words in found if words is not None]

    first = find(reads=True)
    assert [sum(map(int.bit_count, words)) for words in first] == [1, 2]
    assert find(reads=False) == first
    table.upsert(some_rows([5], 10, 0, "again"))
    assert sum(map(int.bit_count, find(reads=True)[1])) == 3


def ids(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.select("id").collect())


def test_frames_over_one_scan_see_their_own_rows(spark: SparkSession, one: Table, frame: DataFrame) -> None:
    rows = {row["id"]: row for row in one.to_arrow().to_pylist()}
    high, low = [key for key in sorted(rows) if rows[key]["v"] >= 10_000], [key for key in rows if rows[key]["v"] < 9]
    assert high
    assert ids(frame.where("v >= 10000").union(frame.where("v < 9"))) == sorted(high + low)
    assert ids(frame.alias("a").join(frame.where("v >= 10000"), "id")) == high
    joined = frame.alias("a").join(frame.alias("b"), functions.expr("a.v = b.v + 10000"))
    values = Counter(row["v"] for row in rows.values())
    assert joined.count() == sum(count * values[value - 10_000] for value, count in values.items())
    frame.createOrReplaceTempView("rows")
    assert ids(spark.sql("select id from rows where v in (select v from rows where v >= 10000)")) == high
    correlated = "select id from rows r where exists (select 1 from rows q where q.id = r.id and q.v >= 10000)"
    assert ids(spark.sql(correlated)) == high
    assert spark.sql("select (select max(v) from rows) m").collect()[0].m == max(row["v"] for row in rows.values())
    cached = frame.where("v >= 10000").cache()
    try:
        assert ids(cached) == ids(cached.where("v > 0")) == high
    finally:
        cached.unpersist()
    counts = frame.groupBy("p").count().collect()
    assert dict(map(tuple, counts)) == Counter(row["p"] for row in rows.values())
    assert frame.agg(functions.count("*")).collect()[0][0] == len(rows) == frame.select().count()


def base_files_read(frame: DataFrame) -> int:
    """Return the number of files that Spark's Parquet scans read."""
    plan = frame._jdf.queryExecution().executedPlan()
    frame._jdf.queryExecution().toRdd().count()
    leaves = plan.collectLeaves()
    scans = [leaf for leaf in map(leaves.apply, range(leaves.size())) if "FileSourceScan" in leaf.getClass().getName()]
    return sum(scan.metrics().apply("numFiles").value() for scan in scans)


def test_a_filter_on_a_partition_opens_its_files_only(spark: SparkSession, one: Table) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")  # The metrics of the scans are then in the plan.
    frame = read(session, one.context.storage.location)
    assert 0 < base_files_read(frame.where("p = 'b'")) < base_files_read(frame)
    assert base_files_read(frame.where("p = 'c'")) == 0
    assert ids(frame.where("p = 'b'")) == sorted(one.to_arrow(["id"], where="p = 'b'")["id"].to_pylist())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "all of them" else pytest.mark.slow)
        for name in SETTINGS
        if name != "nothing"
    ],
)
def test_settings_of_the_session_change_no_rows(name: str, spark: SparkSession, one: Table) -> None:
    session = spark.newSession()
    for key, value in SETTINGS[name].items():
        session.conf.set(key, value)
    path = one.context.storage.location
    frame = read(session, path)
    assert is_scanned(frame)
    assert lines(frame.select("id", "v", "x")) == lines(one.to_arrow(["id", "v", "x"]))
    for text in ("v > 1990", "x = 0", "x > 100000", "id = 'k0007'"):
        assert ids(frame.where(text)) == sorted(one.to_arrow(["id"], where=text)["id"].to_pylist()), text


def test_a_frame_keeps_its_instant_while_the_table_changes(spark: SparkSession, tmp_path: Path) -> None:
    table = logged_table(tmp_path / "t", ordering="ts")
    frame, before, path = read(spark, tmp_path / "t"), table.to_arrow(), str(tmp_path / "t")
    instant = table.snapshot().instant_time
    table.upsert(some_rows([1, 2, 3, ROWS + 9], 99, 70_000, "later"))
    assert lines(frame) == lines(before)
    assert lines(read(spark, path)) == lines(table.to_arrow())
    table.compact()
    assert lines(frame) == lines(before)
    past = read(spark, path, as_of=instant)
    assert is_scanned(past)
    assert lines(past) == lines(before)
    assert not is_scanned(read(spark, path))
    optimized = {"hoodie.datasource.query.type": "read_optimized"}
    assert lines(read(spark, path, **optimized)) == lines(table.to_arrow())


def test_base_files_only_hide_no_rows(spark: SparkSession, one: Table) -> None:
    optimized = {"hoodie.datasource.query.type": "read_optimized"}
    frame = read(spark, one.context.storage.location, **optimized)
    assert not is_scanned(frame)
    assert lines(frame) == lines(lakeformat.open(one.context.storage.location, **optimized).to_arrow())
    assert frame.where("v < 10000").count() == ROWS


def test_columns_that_were_added_and_widened(spark: SparkSession, tmp_path: Path) -> None:
    narrow = a_schema(id="int64", n="int32", f="float64")
    path = tmp_path / "t"
    table = a_table(path, schema=narrow, merge_on_read=True, **{"hoodie.compact.inline": False})
    table.bulk_insert(pa.table({"id": range(ROWS), "n": range(ROWS), "f": [0.5] * ROWS}, schema=narrow))
    wide = a_schema(id="int64", n="int64", f="float64", more="string")
    table.upsert(pa.table({"id": [3, 99], "n": [1 << 40, 7], "f": [0.1, NAN], "more": ["m", None]}, schema=wide))
    frame = read(spark, path)
    assert is_scanned(frame)
    assert lines(frame) == lines(lakeformat.open(path).to_arrow())


def test_a_slice_that_its_log_files_mostly_replace_is_merged_whole(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = logged_table(path, ordering="ts")
    for step in range(4):
        table.upsert(some_rows(range(ROWS), 60 + step, 1, "all"))
    assert not is_scanned(read(spark, path))
    assert lines(read(spark, path)) == lines(table.to_arrow())


@pytest.mark.parametrize("name", ["_metadata", "__Lakeformat_file"])
def test_a_table_with_a_column_of_a_hidden_name_is_merged_whole(name: str, spark: SparkSession, tmp_path: Path) -> None:
    schema = a_schema(id="int64", **{name: "string"})
    table = a_table(tmp_path / "t", schema=schema, merge_on_read=True)
    table.bulk_insert(pa.table({"id": range(ROWS), name: ["old"] * ROWS}, schema=schema))
    table.upsert(pa.table({"id": [3], name: ["new"]}, schema=schema))
    frame = read(spark, tmp_path / "t")
    assert not is_scanned(frame)
    assert lines(frame) == lines(table.to_arrow())


@pytest.mark.slow
def test_tables_of_hudi_read_as_in_plain_python(spark: SparkSession, tmp_path: Path) -> None:
    scanned = 0
    for collection in ("hudi_mor_v6", "hudi_v8_v9"):
        for name in (name for name in names(collection) if "mor" in name):
            path = unpack(name, tmp_path / collection)
            try:
                wanted = lakeformat.open(path).read(meta_columns=True).to_arrow()
            except UnsupportedTableError:  # A merge by the table's own code.
                continue
            frame = read(spark, path, meta_columns=True, via="native")
            scanned += is_scanned(frame)
            assert frame.count() == wanted.num_rows, name
            assert lines(frame.select("_hoodie_record_key", "_hoodie_commit_seqno")) == lines(
                wanted.select(["_hoodie_record_key", "_hoodie_commit_seqno"])
            ), name
    assert scanned > 5
