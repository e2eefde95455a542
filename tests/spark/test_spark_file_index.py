"""The file index: Spark's planner asks lakeformat which files each query reads, and gets the rows of a full scan."""

from __future__ import annotations

import datetime as dt
import gc
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import NumberFormatException
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
from lakeformat import Table
from lakeformat.read.query import make_query
from lakeformat.spark import read
from lakeformat.spark.reads import jvm
from lakeformat.spark.reads.catalyst import filters_to_predicate
from lakeformat.spark.reads.hadoop_access import HadoopAccess
from lakeformat.spark.reads.jvm import status_bytes
from lakeformat.spark.reads.native_scan import native_scan, plan_native
from tests.helpers.pushed_filters import CONDITIONS, PRUNED
from tests.helpers.pushed_filters import SCHEMA as TYPES
from tests.helpers.pushed_filters import rows as typed_rows
from tests.helpers.tables import a_schema
from tests.spark.test_spark_frames import files_read

pytestmark = pytest.mark.spark

NAN = float("nan")
SCHEMA = a_schema(
    id="int64",
    place="string",
    x="float64",
    f="float32",
    t="string",
    at=pa.timestamp("us", "UTC"),
    s=pa.struct([("a", pa.int32())]),
    file_name="string",
)
PLACES = ["a", "b/c%20", "é x", None]
SEPARATE = {"hoodie.parquet.small.file.limit": 0}


def rows(start: int, count: int = 40) -> pa.Table:
    """Return rows whose numbers grow with the id; each file of the table then has a range of its own."""
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": numbers,
            "place": [PLACES[at % 4] for at in numbers],
            "x": [NAN if at % 20 == 7 else -0.0 if start == 0 else float(at) for at in numbers],
            "f": [None if at % 3 == 0 else at / 8 for at in numbers],
            "t": [f"{at:03}" for at in numbers],
            "at": [dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(hours=at) for at in numbers],
            "s": [None if at % 5 == 0 else {"a": at} for at in numbers],
            "file_name": [f"n{at}" for at in numbers],
        },
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Create a table of 16 files: four in each of four partitions."""
    path = tmp_path_factory.mktemp("index") / "t é%20"
    made = lakeformat.create(path, SCHEMA, record_key="id", partition_by="place", **SEPARATE)
    for start in range(0, 160, 40):
        made.insert(rows(start))
    return made


@pytest.fixture(scope="module")
def frame(spark: SparkSession, table: Table) -> DataFrame:
    return read(spark, table.context.storage.location)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def answers(frame: DataFrame, conditions: list[str]) -> dict[str, list[int]]:
    """Return the ids that each condition selects, from one job of as many scans."""
    frames = [frame.where(text).select(functions.lit(at).alias("number"), "id") for at, text in enumerate(conditions)]
    found = reduce(DataFrame.union, frames).collect()
    return {text: sorted(row.id for row in found if row.number == at) for at, text in enumerate(conditions)}


def test_a_condition_that_spark_cannot_evaluate_raises_its_own_error(frame: DataFrame, tmp_path: Path) -> None:
    plain = str(tmp_path / "plain")
    frame.select("id", "place").write.partitionBy("place").parquet(plain)
    for asked in (frame, frame.sparkSession.read.parquet(plain)):
        with pytest.raises(NumberFormatException, match=r"^\[CAST_INVALID_INPUT\]"):
            asked.where("place = 1").count()


#: Spark hands a file index no condition that has partition columns beside others.
MIXED = "place = 'b/c%20' or id = 4"
#: Spark names fields of its hidden column ``_metadata`` like this column.
HIDDEN = "file_name = 'n3' and id < 200"
#: Condition, and the number of the 16 files that a scan with it reads. 16 also if nothing of the condition is known.
CHOSEN = [
    ("id = 5", 4),
    ("5 >= id or id = 155", 8),
    ("id in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 90, null)", 8),
    ("id not in (1, 90)", 16),
    ("not (id > 20 or t = '999')", 4),
    ("t in ('001','002','003','004','005','006','007','008','009','010','011','null',null)", 4),
    ("startswith(t, '15') and id % 2 = 1", 4),
    ("t like '%5'", 16),
    ("x = 0D", 4),
    ("x = -0D and id < 40", 4),
    ("not x in (0D,1D,2D,3D,4D,5D,6D,7D,8D,9D,10D,11D)", 16),
    ("x > 1000", 4),  # NaN. Each fourth id, so one partition, has it.
    ("isnan(x) and id < 40", 1),
    ("x = double('NaN') or id = 0", 5),
    ("x < 100", 12),
    ("f < float('1.5')", 4),
    ("f is null and id >= 120", 4),
    ("f > 18.5D", 4),
    ("cast(t as int) = 150", 16),
    ("cast(id as double) > 158.5", 16),
    ("coalesce(t, 'z') = '150'", 16),
    ("id + 1 = 150", 16),
    ("t = '150' collate UTF8_LCASE", 16),
    ("at >= timestamp'2026-01-07 10:00:00'", 4),
    ("at < timestamp'2025-01-01'", 0),
    ("s.a = 151", 4),
    ("s is null and id < 3", 3),
    ("place = 'a'", 4),
    ("place is null and id > 130", 1),
    ("upper(place) = 'É X'", 4),
    ("length(place) > 1 and id < 3", 2),
    (MIXED, 16),
    (HIDDEN, 16),
    ("id <=> 7 and null is null", 4),
    ("id > 7 and false", 0),
]
#: Condition on a function that keeps the order of a column -> the number of files that plain Python reads. Spark gives
#: a file index no such condition.
FEWER_IN_PLAIN_PYTHON = {"cast(id as double) > 158.5": 1, "id + 1 = 150": 4}


def test_each_query_reads_the_files_that_may_match_and_selects_the_rows_of_a_full_scan(
    spark: SparkSession, frame: DataFrame, table: Table
) -> None:
    conditions = [text for text, _ in CHOSEN]
    assert answers(frame, conditions) == answers(spark.createDataFrame(table.to_arrow()), conditions)
    assert {text: files(frame.where(text)) for text in conditions} == dict(CHOSEN)


def files(frame: DataFrame) -> int:
    """Return the number of files that the scans of a query read. No job runs."""
    leaves = frame._jdf.queryExecution().sparkPlan().collectLeaves()
    scans = (leaves.apply(at) for at in range(leaves.size()))
    return sum(
        scan.selectedPartitions().totalNumberOfFiles()
        for scan in scans
        if scan.getClass().getSimpleName() == "FileSourceScanExec"
    )


@pytest.mark.slow
def test_conditions_on_every_type_select_the_rows_of_a_full_scan(spark: SparkSession, tmp_path: Path) -> None:
    typed = spark.createDataFrame(typed_rows(), TYPES)
    saved = typed.repartition("part").write.format("lakehouse").options(recordkey="id", partitionpath="part")
    saved.mode("append").save(str(tmp_path))
    frame = read(spark, str(tmp_path), meta_columns=True)
    known = [text for text in CONDITIONS if "_hoodie" not in text]
    assert answers(frame, known) == answers(typed, known)
    for text, expected in PRUNED:
        read_files = files(frame.where(text))
        assert max(1, read_files) == expected, text  # The data source reads at least one file.


def test_conditions_of_plain_python_read_the_files_of_its_plan(frame: DataFrame, table: Table) -> None:
    compared = 0
    for text, expected in CHOSEN:
        try:
            plan = table.read(where=text).plan()
        except lakeformat.InvalidInputError:  # A condition that only Spark takes.
            continue
        compared += 1
        if text in (MIXED, HIDDEN):
            continue
        assert files(frame.where(text)) == expected, text
        # Spark also evaluates functions of a partition value that is null.
        fewest = FEWER_IN_PLAIN_PYTHON.get(text, expected)
        assert plan.files_after_stats in (fewest, fewest + 4 * ("(place)" in text)), text
    assert compared > len(CHOSEN) // 2


def test_views_unions_joins_and_threads_have_their_own_files(frame: DataFrame) -> None:
    frame.createOrReplaceTempView("indexed")
    spark = frame.sparkSession
    found = spark.sql("select id from indexed where id = 5 union all select id from indexed where id = 150")
    assert (files(found), ids(found)) == (8, [5, 150])
    both = frame.where("id = 4").alias("a").join(frame.where("id = 124").alias("b"), "place")
    assert (files(both), both.count()) == (6, 1)
    newest = spark.sql("select id from indexed where id = (select max(id) from indexed)")
    assert ids(newest) == [159]
    with ThreadPoolExecutor(4) as pool:
        counted = list(pool.map(lambda at: ids(frame.where(f"id = {at}")), (3, 44, 85, 126)))
    assert counted == [[3], [44], [85], [126]]


def test_a_join_on_the_partition_column_reads_the_partitions_of_the_other_side(frame: DataFrame) -> None:
    spark = frame.sparkSession
    other = spark.createDataFrame([("a", 1), ("é x", 2)], "place string, k int").where("k = 1")
    joined = frame.join(functions.broadcast(other), "place")
    assert ids(joined) == list(range(0, 160, 4))
    assert files(frame.where("place in ('a', 'é x') and id < 40")) == 2
    assert ids(frame.where("place <=> (select max(place) from values ('a') as v(place))")) == list(range(0, 160, 4))


def test_frames_of_the_same_files_share_a_cache(frame: DataFrame, table: Table) -> None:
    cached = frame.where("id = 44").cache()
    assert cached.count() == 1
    other = read(frame.sparkSession, table.context.storage.location)
    assert other.where("id = 44").storageLevel.useMemory
    assert not other.where("id = 45").storageLevel.useMemory
    assert not other.select("id").where("id = 44").storageLevel.useMemory
    cached.unpersist()


def test_other_sessions_read_the_same_rows(spark: SparkSession, table: Table) -> None:
    session = spark.newSession()
    frame = read(session, table.context.storage.location, ["id", "x"])
    assert (files(frame.where("id = 5")), ids(frame.where("id = 5"))) == (4, [5])
    assert frame.sparkSession is session


def test_a_frame_keeps_its_instant(spark: SparkSession, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", **SEPARATE)
    table.insert(rows(0))
    table.insert(rows(40))
    old = read(spark, str(tmp_path))
    assert ids(old.where("t = '005'")) == [5]
    table.upsert(rows(0, 6).set_column(4, "t", pa.array(["900"] * 6)))
    table.insert(rows(80))
    new = read(spark, str(tmp_path))
    assert ids(old.where("t = '005' or t = '900'")) == [5]
    assert ids(new.where("t = '005' or t = '900'")) == [0, 1, 2, 3, 4, 5]
    past = read(spark, str(tmp_path), as_of=table.history()[-1].instant_time)
    assert (ids(past.where("id > 30 and t > '036'")), past.where("t > '036'").count()) == ([37, 38, 39], 3)
    assert (files(new), files(new.where("t = '900'")), files(old), files(past)) == (3, 1, 2, 1)
    changed = read(
        spark,
        str(tmp_path),
        **{
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": table.history()[1].instant_time,
        },
    )
    assert ids(changed.where("t > '118'")) == [119]


def test_merge_on_read_tables_without_log_files_are_indexed(spark: SparkSession, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id", **SEPARATE, **{"table_type": "MERGE_ON_READ"})
    table.insert(rows(0))
    table.insert(rows(40))
    frame = read(spark, str(tmp_path))
    assert (files(frame.where("id = 5")), ids(frame.where("id = 5"))) == (1, [5])
    table.upsert(rows(0, 6).set_column(4, "t", pa.array(["900"] * 6)))
    merged = read(spark, str(tmp_path))
    assert ids(merged.where("t >= '079'")) == [0, 1, 2, 3, 4, 5, 79]
    assert ids(frame.where("t >= '079'")) == [79]


def test_files_of_older_types_are_skipped_by_the_columns_of_today(spark: SparkSession, tmp_path: Path) -> None:
    old, new = a_schema(id="int64", n="int32"), a_schema(id="int64", n="int64", late="string")
    settings = {"hoodie.write.set.null.for.missing.columns": True, **SEPARATE}
    table = lakeformat.create(tmp_path, old, record_key="id", **settings)
    table.insert(pa.table({"id": [1, 2], "n": [1, None]}, schema=old))
    table.insert(pa.table({"id": [3, 4], "n": [2**40, 2], "late": ["x", None]}, schema=new))
    frame = read(spark, str(tmp_path))
    conditions = ["n = 1", "n > 4000000000", "n is null", "late is null", "late = 'x'", "n < 2 or late = 'x'"]
    assert answers(frame, conditions) == answers(spark.createDataFrame(table.to_arrow()), conditions)
    assert files(frame.where("n > 4000000000")) == 1


def test_hidden_columns_are_not_taken_for_columns_of_the_table(frame: DataFrame) -> None:
    names = frame.where("id in (3, 120)").select("_metadata.file_name", "id").collect()
    for name, number in names:
        assert ids(frame.where(functions.col("_metadata.file_name") == name).where(f"id = {number}")) == [number]
    assert ids(frame.where("file_name = 'n3'")) == [3]


def test_long_lists_that_differ_in_the_middle_are_different_filters(frame: DataFrame) -> None:
    ends = [*range(1000, 1020)]
    for wanted in (5, 150):
        values = ", ".join(map(str, [*ends, wanted, *(end + 50 for end in ends)]))
        assert ids(frame.where(f"id in ({values})")) == [wanted]


def test_calls_into_the_jvm_do_not_grow_with_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = a_schema(id="int64", n="int32")
    table = lakeformat.create(tmp_path, schema, record_key="id", partition_by="n")
    table.bulk_insert(pa.table({"id": range(200), "n": range(200)}, schema=schema))
    frame = read(spark, str(tmp_path))
    calls = _count_calls(spark, monkeypatch)
    assert files(frame.where("id >= 0")) == files(frame) == 200
    assert files(frame.where("n >= 50 and id < 100")) == 50
    monkeypatch.undo()
    assert 50 < len(calls) < 400  # A call for each file would be 450 more.
    assert len(frame.inputFiles()) == 200
    assert files_read(frame.where("n >= 50")) == 150


def _count_calls(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    client, calls = spark.sparkContext._gateway._gateway_client, list[str]()
    send = client.send_command

    def counted(command: str, *rest: object, **named: object) -> object:
        if not command.startswith("m\n"):  # Releases of objects of the JVM come whenever Python collects garbage.
            calls.append(command)
        return send(command, *rest, **named)

    monkeypatch.setattr(client, "send_command", counted)
    return calls


def test_without_our_file_index_spark_lists_the_files_itself(spark: SparkSession, table: Table) -> None:
    context, snapshot = table.context, table.snapshot()
    query = make_query(snapshot, context.storage.location, table.options)
    plan = plan_native(context.store, snapshot, query, indexed=False)
    access = HadoopAccess(context.storage.location)
    frame = native_scan(spark, context.storage, access, plan, split_bytes=table.options.read.split_bytes, jvm=None)
    assert (files(frame), files(frame.where("place = 'a'")), files(frame.where("id = 5"))) == (16, 4, 16)
    assert ids(frame.where("id = 5 or x > 1000")) == ids_of_nan([5])


def test_an_error_of_the_index_reaches_the_query(spark: SparkSession, table: Table) -> None:
    frame = read(spark, table.context.storage.location)
    index = frame._jdf.queryExecution().analyzed().collectLeaves().head().relation().location()
    with pytest.raises(Py4JJavaError, match="RuntimeException"):
        index.listFiles(None, None)
    assert len(list(index.inputFiles())) == 16


def test_an_index_that_spark_has_dropped_is_forgotten(spark: SparkSession, table: Table) -> None:
    opened = jvm.open_jvm(spark)
    assert opened is not None
    numbers = opened.planner._numbers
    read(spark, table.context.storage.location)
    last = next(numbers)
    for _ in range(100):
        gc.collect()  # Releases the objects of the JVM that this process knows.
        spark._jvm.java.lang.System.gc()
        if last - 1 not in opened.planner._indexes:
            return
        spark._jvm.java.lang.Thread.sleep(100)
    pytest.fail("the index is still known")


def ids_of_nan(others: list[int]) -> list[int]:
    return sorted([*others, *range(7, 160, 20)])


def test_expressions_of_other_libraries_rule_out_nothing(spark: SparkSession, frame: DataFrame) -> None:
    odd = functions.udf(lambda value: value % 2 == 1, "boolean")
    assert ids(frame.where(odd("id") & (functions.col("id") < 6))) == [1, 3, 5]
    assert filters_to_predicate([object()], SCHEMA) == filters_to_predicate([], SCHEMA)


def test_status_of_a_file_says_path_and_sizes(spark: SparkSession) -> None:
    java = spark._jvm.java
    status = spark._jvm.org.apache.hadoop.fs.FileStatus()
    data = status_bytes('file:/a b/%20"<é>\n\u0000.parquet', 1 << 40, 1_700_000_000_000)
    status.readFields(java.io.DataInputStream(java.io.ByteArrayInputStream(data)))
    assert status.getPath().getName() == '%20"<é>\n\u0000.parquet'
    assert (status.getLen(), status.getModificationTime(), status.isFile()) == (1 << 40, 1_700_000_000_000, True)
