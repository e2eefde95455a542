"""``load`` after ``register(spark)``: rows and columns of the data source, by Spark's own scan with our file index."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.types import LongType, StringType, StructField, StructType

import lakeformat
from lakeformat import Table
from lakeformat.spark import LakehouseTable, read, register, unregister
from lakeformat.spark.verbs import original_verb
from tests.helpers.lakehouse import run_application
from tests.helpers.s3_server import new_folder, s3_server
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.spark

SCHEMA = a_schema(id="int64", part="string", ts="int64", x="float32")


def batch(start: int, count: int = 10, ts: int = 1) -> list[dict[str, Any]]:
    return [{"id": n, "part": f"p{n % 2}", "ts": ts, "x": n / 2} for n in range(start, start + count)]


@pytest.fixture
def fast(spark: SparkSession) -> SparkSession:
    """Return the session after `register`."""
    register(spark)
    return spark


def loaded(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("lakehouse").options(**options).load(path)


def by_source(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    """Load a table as an unregistered process does."""
    reader = spark.read.format("lakehouse").options(**options)
    return original_verb(reader, "load")(path)


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def is_indexed(frame: DataFrame) -> bool:
    return "Location: LakehouseFileIndex(1 paths)" in frame._jdf.queryExecution().toString()


@pytest.fixture(scope="module", params=["COPY_ON_WRITE", "MERGE_ON_READ", "flat"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Create a table with an insert, an upsert and a delete: 12 rows."""
    path = tmp_path_factory.mktemp("load") / "t é%20"
    kind = {"table_type": request.param} if request.param != "flat" else {}
    places = {"partition_by": "part"} if request.param != "flat" else {}
    made = lakeformat.create(path, SCHEMA, record_key="id", ordering="ts", **kind, **places)
    made.insert(batch(0))
    made.upsert(batch(8, 5, ts=2))
    made.delete([{"id": 3, "part": "p1", "ts": 3}])
    return made


RANGE = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": "000"}
READS: list[dict[str, Any]] = [
    {},
    {"where": "id > 5 and x < 5.5"},
    {"columns": "x,id"},
    {"columns": "id", "where": "part = 'p1'", "meta_columns": "false"},
    {"meta_columns": "false"},
    {"hoodie.datasource.query.type": "read_optimized"},
    RANGE,
    {"hoodie.enable.data.skipping": "false", "where": "id = 9"},
    {"verify": "true", "where": "id = 9"},
    {"hoodie.some.old.option": "1"},
]


@pytest.mark.parametrize("options", READS, ids=str)
def test_load_gives_the_rows_of_the_data_source(fast: SparkSession, table: Table, options: dict[str, Any]) -> None:
    path = table.context.storage.location
    frame, expected = loaded(fast, path, **options), by_source(fast, path, **options)
    assert frame.schema == expected.schema
    assert rows(frame) == rows(expected)
    assert frame.count() == expected.count()


def test_every_way_to_name_format_path_and_options_reaches_the_fast_scan(fast: SparkSession, table: Table) -> None:
    path = table.context.storage.location
    reader = fast.read
    frames = [
        reader.format("lakehouse").load(path),
        fast.read.load(path, format="Lakehouse"),
        fast.read.load(path, "lakehouse", where="id >= 0"),
        fast.read.option("path", path).format("lakehouse").load(),
        fast.read.format("lakehouse").load(path=[path]),
        fast.newSession().read.format("lakehouse").options(Where="id >= 0").load(path),
        read(fast, path, meta_columns=True),
    ]
    expected = rows(by_source(fast, path))
    assert [rows(frame) for frame in frames] == [expected] * 7
    assert all(map(is_indexed, frames))


def test_frames_views_and_plain_python_give_the_same_rows(fast: SparkSession, table: Table) -> None:
    path = table.context.storage.location
    frame = loaded(fast, path)
    frame.createOrReplaceTempView("loaded_flights")
    chosen = "select id, x from loaded_flights where part = 'p1' and x > 2"
    expected = table.to_arrow(["id", "x"], where="part = 'p1' and x > 2").to_pylist()
    found = [
        fast.sql(chosen),
        frame.where("part = 'p1'").where("x > 2").select("id", "x"),
        LakehouseTable.forPath(fast, path).read().where("part = 'p1' and x > 2").select("id", "x"),
    ]
    assert [sorted((row.asDict() for row in each.collect()), key=str) for each in found] == [
        sorted(expected, key=str)
    ] * 3


def test_time_travel_and_ranges_read_their_instants(fast: SparkSession, table: Table) -> None:
    path = table.context.storage.location
    times = sorted(entry.instant_time for entry in table.history())
    for options in (
        {"as.of.instant": times[0]},
        {"as.of.instant": times[1]},
        {**RANGE, "hoodie.datasource.read.begin.instanttime": times[0]},
        {**RANGE, "hoodie.datasource.query.incremental.format": "cdc"},
    ):
        frame, expected = loaded(fast, path, **options), by_source(fast, path, **options)
        assert frame.schema == expected.schema
        assert rows(frame) == rows(expected)
    assert loaded(fast, path, **{"as.of.instant": times[0]}).count() == 10


def test_schemas_of_the_user_choose_and_widen_columns(fast: SparkSession, table: Table) -> None:
    path = table.context.storage.location
    for schema in (
        "x double, _hoodie_record_key string, id bigint",
        StructType([StructField("part", StringType()), StructField("id", LongType())]),
        "x float, id bigint",
    ):
        reader = fast.read.format("lakehouse").schema(schema).option("where", "x > 2")
        frame, expected = reader.load(path), original_verb(reader, "load")(path)
        assert frame.schema == expected.schema
        assert rows(frame) == rows(expected)
    with pytest.raises(lakeformat.errors.SchemaMismatchError, match="names 'idd', which the table lacks"):
        fast.read.format("lakehouse").schema("idd bigint").load(path)


def test_errors_are_one_line_of_our_own_class(fast: SparkSession, table: Table, tmp_path: Path) -> None:
    path = table.context.storage.location
    bad: list[tuple[type[Exception], dict[str, Any], str | list[str] | None]] = [
        (lakeformat.errors.TableNotFoundError, {}, str(tmp_path)),
        (lakeformat.errors.InvalidOptionError, {}, None),
        (lakeformat.errors.InvalidOptionError, {}, [path, path]),
        (lakeformat.errors.InvalidOptionError, {"hoodie.datasource.query.type": "some"}, path),
        (lakeformat.errors.InvalidInputError, {"where": "nope = 1"}, path),
        (lakeformat.errors.InvalidOptionError, RANGE | {"hoodie.datasource.read.begin.instanttime": "now"}, path),
    ]
    for kind, options, where in bad:
        with pytest.raises(kind) as caught:
            fast.read.format("lakehouse").options(**options).load(where)
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(AnalysisException, match="path"):  # Spark's own error.
        fast.read.format("lakehouse").option("path", path).load(path)


def test_other_formats_reach_pyspark_with_the_same_arguments(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = DataFrameReader.load, []

    def recorded(self: DataFrameReader, *arguments: Any, **named: Any) -> DataFrame:
        calls.append((arguments, named))
        return original(self, *arguments, **named)

    monkeypatch.setattr(DataFrameReader, "load", recorded)
    register(spark)
    path = str(tmp_path / "numbers")
    spark.range(3).write.parquet(path)
    frames = [
        spark.read.load(path),
        spark.read.load([path, path], format="parquet", schema="id long"),
        spark.read.format("parquet").load(path, recursiveFileLookup=True),
        spark.read.option("path", path).format("parquet").load(),
        spark.read.parquet(path),
    ]
    assert [frame.count() for frame in frames] == [3, 6, 3, 3, 3]
    assert calls == [
        ((path,), {}),
        (([path, path],), {"format": "parquet", "schema": "id long"}),
        ((path,), {"recursiveFileLookup": True}),
        ((), {}),
    ]
    with pytest.raises(TypeError):
        spark.read.load(path, format="lakehouse", **{"path": path})
    unregister()
    assert DataFrameReader.load is recorded


def test_unregister_restores_the_methods_and_a_wrapper_of_others_passes_calls_on(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table.context.storage.location
    original = DataFrameReader.__dict__["load"]
    register(spark)
    first = DataFrameReader.__dict__["load"]
    register(spark.newSession())
    assert DataFrameReader.__dict__["load"] is first is not original
    assert first.__doc__ == original.__doc__
    unregister()
    assert DataFrameReader.__dict__["load"] is original
    register(spark)
    ours = DataFrameReader.__dict__["load"]

    def of_others(reader: DataFrameReader, path: str) -> DataFrame:
        return ours(reader, path)

    monkeypatch.setattr(DataFrameReader, "load", of_others)
    unregister()
    assert not is_indexed(spark.read.format("lakehouse").load(path))
    monkeypatch.undo()
    DataFrameReader.load = original  # type: ignore[method-assign]


def test_threads_load_at_once(fast: SparkSession, table: Table) -> None:
    path = table.context.storage.location
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda at: rows(loaded(fast, path, where=f"id > {at}").select("id")), range(8)))
    assert [len(each) for each in found] == [len(table.to_arrow(["id"], where=f"id > {at}")) for at in range(8)]


CURE = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
from pyspark_lakehouse import DefaultSource

for _ in range(2):
    source = DefaultSource({"path": sys.argv[1]})
    source.reader(source.schema())
"""


def test_the_data_source_names_register_once_in_its_log(table: Table, tmp_path: Path) -> None:
    said = run_application(CURE, table.context.storage.location, cwd=tmp_path)
    assert said.count("lakeformat.spark.register(spark)") == 1


CONNECT = """
import json, sys
from pyspark.sql import SparkSession
from pyspark.sql.connect.readwriter import DataFrameReader
import lakeformat
from lakeformat.spark import register, unregister

path, own = sys.argv[1], DataFrameReader.__dict__["load"]
spark = SparkSession.builder.remote("local[1]").getOrCreate()


def answers():
    lakehouse = lambda **options: spark.read.format("lakehouse").options(**options)
    frames = [
        lakehouse().load(path),
        lakehouse(where="id > 5 and x < 5.5", columns="x,id").load([path]),
        lakehouse(path=path).schema("part string, id long").load(),
        spark.read.load(path, format="lakehouse", schema=spark.read.format("lakehouse").load(path).select("id").schema),
        lakehouse(**{"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": "000",
            "hoodie.datasource.query.incremental.format": "cdc"}).load(path),
    ]
    return [[frame.schema.simpleString(), *sorted(map(str, frame.collect()))] for frame in frames]


before = answers()
register(spark)
assert DataFrameReader.__dict__["load"] is not own
after = answers()
try:
    spark.read.format("lakehouse").load(path + "-absent").count()
except Exception as error:
    absent = str(error)
plan = spark.read.format("lakehouse").load(path)._explain_string()
spark.range(3).write.parquet(path + "-numbers")
other = [spark.read.load(path + "-numbers").count(), spark.read.parquet(path + "-numbers").count()]
unregister()
assert DataFrameReader.__dict__["load"] is own
spark.stop()
print(json.dumps([before, after, absent, plan, other]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("table", ["COPY_ON_WRITE"], indirect=True)
@pytest.mark.skipif(find_spec("grpc") is None, reason="Spark Connect needs pyspark[connect]")
def test_load_over_spark_connect_is_the_scan_of_spark(table: Table, tmp_path: Path) -> None:
    said = run_application(CONNECT, table.context.storage.location, cwd=tmp_path)
    before, after, absent, plan, other = json.loads(said)
    assert after == before
    assert "TableNotFoundError" in absent
    assert "FileScan parquet" in plan
    assert other == [3, 3]


ON_S3 = """
import sys
from pyspark.sql import SparkSession
import lakeformat
from lakeformat.spark import register

lakeformat.create(sys.argv[1], {"id": [1, 2, 3]}, record_key="id", insert=True)
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
print(spark.read.format("lakehouse").load(sys.argv[1]).where("id > 1").count())
"""


@pytest.mark.slow
def test_storage_that_only_the_data_source_can_open_is_read_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server() as options:
        said = {
            "AWS_ACCESS_KEY_ID": options["key"],
            "AWS_SECRET_ACCESS_KEY": options["secret"],
            "AWS_ENDPOINT_URL": options["client_kwargs"]["endpoint_url"],
            "AWS_REGION": options["client_kwargs"]["region_name"],
            "AWS_ALLOW_HTTP": "true",
        }
        for name, value in said.items():
            monkeypatch.setenv(name, value)
        assert run_application(ON_S3, new_folder(options).location, cwd=tmp_path).split() == ["2"]
