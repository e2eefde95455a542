"""Every way to read, under every setting of sessions, compared with Spark's own answer on plain Parquet."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeformat.spark import read, register
from tests.helpers.lakehouse import run_application
from tests.helpers.read_paths import (
    CONDITIONS,
    SETTINGS,
    find_differences,
    make_tables,
    read_answers,
    spark_answers,
    stream_answers,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ways")
    make_tables(path)
    return path


def _session(spark: SparkSession, setting: str) -> SparkSession:
    session = spark.newSession()
    register(session)
    for key, value in SETTINGS[setting].items():
        session.conf.set(key, value)
    return session


#: Settings of `make test-slow`. `make nightly` tests all.
_OFTEN = {"nothing", "another zone", "all of them"}


@pytest.mark.parametrize(
    "setting",
    [pytest.param(name, marks=pytest.mark.slow if name in _OFTEN else pytest.mark.nightly) for name in SETTINGS],
)
def test_every_read_path_selects_the_rows_of_spark(setting: str, spark: SparkSession, folder: Path) -> None:
    assert find_differences(_session(spark, setting), folder, setting) == {}


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["another zone", "all of them"])
def test_streams_select_the_rows_of_spark(setting: str, spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    session = _session(spark, setting)
    texts = [CONDITIONS[2], CONDITIONS[4]]
    for at, (text, ids) in enumerate(spark_answers(session, folder, texts).items()):
        checkpoint = tmp_path / str(at)
        assert stream_answers(session, str(folder / "moments"), checkpoint, text, by_option=True) == ids
    text = CONDITIONS[0]
    ids = spark_answers(session, folder, [text])[text]
    assert stream_answers(session, str(folder / "days"), tmp_path / "where", text, by_option=False) == ids


def test_two_sessions_use_their_own_zones(spark: SparkSession, folder: Path) -> None:
    far, near = _session(spark, "another zone"), _session(spark, "pushdown")
    texts = [CONDITIONS[at] for at in (0, 1, 4)]
    wanted = {name: spark_answers(session, folder, texts) for name, session in (("far", far), ("near", near))}
    assert wanted["far"] != wanted["near"]
    path = str(folder / "moments")
    for way in ("native", "source"):
        read(far, path, via=way).createOrReplaceGlobalTempView("two_sessions")
        for name, session in (("near", near), ("far", far), ("near", near)):
            query = f"select * from {session.conf.get('spark.sql.globalTempDatabase')}.two_sessions where "  # noqa: S608
            assert read_answers(lambda text, ask=session.sql, query=query: ask(query + text), texts) == wanted[name]
    by_option = {
        name: read_answers(
            lambda text, session=session: session.read.format("lakehouse").option("where", text).load(path), texts
        )
        for name, session in (("far", far), ("near", near))
    }
    assert by_option == wanted


def test_text_comparisons_follow_ansi_mode(spark: SparkSession, folder: Path) -> None:
    texts = ["at in ('1970-01-01', '2024-01-01')"]
    wanted = spark_answers(spark, folder, texts)
    loose = _session(spark, "no ANSI")
    assert spark_answers(loose, folder, texts) != wanted
    assert read_answers(lambda text: read(loose, str(folder / "days"), where=text), texts) == wanted


PROGRAM = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from pyspark.sql import SparkSession
from tests.helpers.read_paths import SETTINGS, CONDITIONS, find_differences, make_tables, spark_answers, stream_answers

folder = Path(sys.argv[1])
make_tables(folder)
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "1").remote("local[1]").getOrCreate()
assert "connect" in type(spark).__module__
failures = {}
for setting in ("nothing", "all of them"):
    for key, value in SETTINGS[setting].items():
        spark.conf.set(key, value)
    failures |= {f"{setting}, {what}": ids for what, ids in find_differences(spark, folder, setting, "moments").items()}
text = CONDITIONS[3]
ids = stream_answers(spark, str(folder / "moments"), folder / "checkpoint", text, by_option=True)
if ids != spark_answers(spark, folder, [text])[text]:
    failures["stream"] = ids
spark.stop()
print(json.dumps(failures))
"""


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("grpc") is None, reason="Spark Connect needs pyspark[connect]")
def test_every_read_path_over_connect_selects_the_rows_of_spark(tmp_path: Path) -> None:
    assert json.loads(run_application(PROGRAM, tmp_path, Path(__file__).parents[2], cwd=tmp_path)) == {}


UNSET = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from pyspark.sql import SparkSession
from tests.helpers.read_paths import CONDITIONS, WAYS, make_tables, read_answers, spark_answers

folder = Path(sys.argv[1])
make_tables(folder)
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", "-Duser.timezone=Asia/Kathmandu").getOrCreate()
wanted, path = spark_answers(spark, folder), str(folder / "moments")
ways = {name: read_answers(WAYS[name](spark, path)) == wanted for name in ("load(where)", "read(where)", "load")}
spark.stop()
print(json.dumps(ways))
"""


@pytest.mark.nightly
def test_unset_session_zone_is_the_jvm_zone(tmp_path: Path) -> None:
    answered = json.loads(run_application(UNSET, tmp_path, Path(__file__).parents[2], cwd=tmp_path))
    assert answered == {"load(where)": True, "read(where)": True, "load": True}
