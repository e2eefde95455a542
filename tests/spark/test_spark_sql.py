"""SQL without a catalog: statements from the guides of Hudi and Delta, compared with a model of their meaning."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakeformat
from lakeformat import InvalidInputError, UnsupportedTableError
from lakeformat.spark import LakehouseTable, sql
from tests.helpers import hudi_rs
from tests.helpers.sql_cases import FIRST, REFUSED, STATEMENTS
from tests.helpers.sql_guides import DELTA, HUDI, Step, play
from tests.helpers.sql_on_spark import check_refusal, check_statement, make_flights, read_flights

pytestmark = pytest.mark.spark

_NUMBER = itertools.count()


@pytest.fixture
def flights(spark: SparkSession, tmp_path: Path) -> Any:
    """Return a table's name, its path and a function that returns its rows."""
    name, path = f"flights_{next(_NUMBER)}", tmp_path / "t"
    make_flights(spark, name, path)
    return name, str(path), lambda: read_flights(path)


#: A few of the cases, which duckdb runs as well, show the behaviour of Spark. The others take longer.
FEW = {"update by an expression", "insert of named columns", "merge with every clause", "a row matched twice"}


def cases(of: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in FEW else [pytest.mark.slow]) for name in of]


@pytest.mark.parametrize("case", cases(STATEMENTS))
def test_statement_changes_the_rows_it_selects(case: str, flights: Any, spark: SparkSession) -> None:
    check_statement(spark, case, flights[0], Path(flights[1]))


def test_queries_see_the_newest_commit_by_name_and_by_path(flights: Any, spark: SparkSession) -> None:
    name, path, held = flights
    lakeformat.open(path).delete(where="id < 3 or id = 5")
    sql(spark, f"update {name} set ts = 9 where id in (select max(id) from {name})")
    assert held() == {3: FIRST[3], 4: ("a", 6.0, 9)}
    asked = f"select count(*) as n from {name} join lakehouse.`{path}` other using (id)"
    assert sql(spark, asked).collect()[0].n == 2
    assert spark.sql("select 1 as one").collect() == sql(spark, "select 1 as one").collect()


def test_other_spark_tables_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    own = f"own_{next(_NUMBER)}"
    sql(spark, f"create table {own} (a int comment 'not using hudi') using parquet location '{tmp_path}/own'")
    sql(spark, f"insert into {own} values (1)")
    assert sql(spark, f"select * from {own}").collect() == [(1,)]
    assert sql(spark, f"describe {own}").collect()[0].comment == "not using hudi"
    with pytest.raises(InvalidInputError, match="in Spark's catalog already"):
        sql(spark, f"create table {own} (a int) using hudi location '{tmp_path}/ours'")
    sql(spark, f"drop table {own}")
    assert not spark.catalog.tableExists(own)


@pytest.mark.slow
def test_known_procedures_run(flights: Any, spark: SparkSession) -> None:
    name, path, held = flights
    sql(spark, f"update {name} set ts = 2 where id = 1")
    commits = sql(spark, f"call show_commits(table => '{name}', limit => 5)").collect()
    assert [row.operation for row in commits] == ["update", "bulk_insert"]
    sql(spark, f"call run_clustering(table => '{name}', order => 'id')")
    assert sql(spark, f"call show_commits(path => '{path}', limit => 1)").collect()[0].operation == "cluster"
    assert held() == FIRST | {1: ("b", 1.5, 2)}
    with pytest.raises(UnsupportedTableError, match="did you mean 'show_commits'"):
        sql(spark, f"call show_comits(table => '{name}')")
    with pytest.raises(InvalidInputError, match="takes no colour"):
        sql(spark, f"call run_clustering(table => '{name}', colour => 'red')")


@pytest.mark.parametrize("case", cases(REFUSED))
def test_unsupported_statement_is_refused_in_one_line(case: str, flights: Any, spark: SparkSession) -> None:
    check_refusal(spark, case, flights[0], Path(flights[1]))


def test_table_facts_need_no_spark_job(flights: Any, spark: SparkSession) -> None:
    _, path, _ = flights
    table = LakehouseTable.forPath(spark, path)
    assert (table.exists(), table.count(), table.count("id > 3"), table.files().num_rows) == (True, 6, 2, 2)
    assert [field.name for field in table.schema.fields] == ["id", "part", "price", "ts"]
    assert not LakehouseTable.forPath(spark, f"{path}-nowhere").exists()


@pytest.mark.slow
@pytest.mark.parametrize("guide", [HUDI, DELTA], ids=["hudi", "delta"])
def test_quick_start_runs_unchanged(guide: list[Step], spark: SparkSession, tmp_path: Path) -> None:
    play(guide, lambda text: [tuple(row) for row in sql(spark, text).collect()], str(tmp_path), next(_NUMBER))
    for table in tmp_path.iterdir():
        hudi_rs.assert_same_rows(lakeformat.open(table))
