"""SQL statements over Spark Connect: the cases and the quick starts that classic Spark runs."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.lakehouse import run_application
from tests.helpers.sql_cases import REFUSED, STATEMENTS

pytestmark = pytest.mark.spark

PROGRAM = """
import json, sys, traceback
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from pyspark.sql import SparkSession
from lakeformat.spark import sql
from tests.helpers.sql_cases import REFUSED, STATEMENTS
from tests.helpers.sql_guides import DELTA, HUDI, play
from tests.helpers.sql_on_spark import check_refusal, check_statement, make_flights

folder = Path(sys.argv[1])
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "1").remote("local[1]").getOrCreate()
assert "connect" in type(spark).__module__
failures = {}


def trying(name, act):
    try:
        act()
    except BaseException:
        failures[name] = traceback.format_exc()


def checking(at, case, check):
    name, path = f"flights_{at}", folder / f"t{at}"
    make_flights(spark, name, path)
    check(spark, case, name, path)


for at, case in enumerate(STATEMENTS if sys.argv[3] == "statements" else REFUSED):
    trying(case, lambda: checking(at, case, check_statement if case in STATEMENTS else check_refusal))
for at, guide in enumerate([HUDI, DELTA] if sys.argv[3] == "refusals and guides" else []):
    (folder / f"guide{at}").mkdir()
    run = lambda text: [tuple(row) for row in sql(spark, text).collect()]
    trying(f"guide {at}", lambda: play(guide, run, str(folder / f"guide{at}"), at))
spark.stop()
print(json.dumps(failures))
"""


@pytest.mark.skipif(find_spec("grpc") is None, reason="Spark Connect needs pyspark[connect]")
@pytest.mark.parametrize(
    "which",
    [
        pytest.param("statements", marks=pytest.mark.nightly),
        pytest.param("refusals and guides", marks=pytest.mark.nightly),
    ],
)
def test_statements_and_quick_starts_over_connect(which: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    assert json.loads(run_application(PROGRAM, tmp_path, root, which, cwd=tmp_path)) == {}
    is_short = which == "statements"
    assert len(list(tmp_path.glob("t*"))) == len(STATEMENTS if is_short else REFUSED)
    guided = list(tmp_path.glob("guide*/*"))
    assert bool(guided) != is_short
    for table in guided:
        hudi_rs.assert_same_rows(lakeformat.open(table))
