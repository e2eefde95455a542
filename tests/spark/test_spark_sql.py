"""SQL without a catalog: statements of the guides of Hudi and Delta, held against a model of what they mean."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakeformat
from lakeformat import InvalidInputError, UnsupportedTableError
from lakeformat.spark import LakehouseTable, sql, view
from tests.helpers import hudi_rs
from tests.helpers.sql_cases import FIRST, REFUSED, STATEMENTS, Held
from tests.helpers.sql_guides import DELTA, HUDI, Step, play

pytestmark = pytest.mark.spark

_NUMBER = itertools.count()


@pytest.fixture
def flights(spark: SparkSession, tmp_path: Path) -> Any:
    """A table that is known by a name of its own, and what it holds."""
    name, path = f"flights_{next(_NUMBER)}", str(tmp_path / "t")
    rows = spark.createDataFrame([(k, *v) for k, v in FIRST.items()], "id long, part string, price double, ts long")
    LakehouseTable.forPath(spark, path, recordkey="id", partitionpath="part").bulk_insert(rows)
    view(spark, name, path)

    def held() -> Held:
        rows = hudi_rs.assert_same_rows(lakeformat.open(path))
        return {row["id"]: (row["part"], row["price"], row["ts"]) for row in rows}

    return name, path, held


#: Of all cases, which duckdb runs as well, so many show what is Spark's own; the others take longer.
FEW = {"update by an expression", "insert of named columns", "merge with every clause", "a row matched twice"}


def cases(of: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in FEW else [pytest.mark.slow]) for name in of]


@pytest.mark.parametrize("case", cases(STATEMENTS))
def test_a_statement_does_what_it_says(case: str, flights: Any, spark: SparkSession) -> None:
    name, path, held = flights
    text, wanted = STATEMENTS[case]
    before = {table.name for table in spark.catalog.listTables()}
    told = sql(spark, text.replace("{t}", name).replace("{path}", path) + ";").collect()
    assert held() == wanted(dict(FIRST))
    assert len(told) == 1
    assert len(lakeformat.open(path).history()) == 2
    assert {table.name for table in spark.catalog.listTables()} == before
    seen = {row["id"]: (row["part"], row["price"], row["ts"]) for row in sql(spark, f"select * from {name}").collect()}
    assert seen == wanted(dict(FIRST))


def test_queries_see_the_newest_commit_by_name_and_by_path(flights: Any, spark: SparkSession) -> None:
    name, path, held = flights
    lakeformat.open(path).delete(where="id < 3 or id = 5")
    sql(spark, f"update {name} set ts = 9 where id in (select max(id) from {name})")
    assert held() == {3: FIRST[3], 4: ("a", 6.0, 9)}
    asked = f"select count(*) as n from {name} join lakehouse.`{path}` other using (id)"
    assert sql(spark, asked).collect()[0].n == 2
    assert spark.sql("select 1 as one").collect() == sql(spark, "select 1 as one").collect()


def test_tables_of_sparks_own_stay_sparks(spark: SparkSession, tmp_path: Path) -> None:
    own = f"own_{next(_NUMBER)}"
    sql(spark, f"create table {own} (a int comment 'not using hudi') using parquet location '{tmp_path}/own'")
    sql(spark, f"insert into {own} values (1)")
    assert sql(spark, f"select * from {own}").collect() == [(1,)]
    assert sql(spark, f"describe {own}").collect()[0].comment == "not using hudi"
    with pytest.raises(InvalidInputError, match="Spark's own already"):
        sql(spark, f"create table {own} (a int) using hudi location '{tmp_path}/ours'")
    sql(spark, f"drop table {own}")
    assert not spark.catalog.tableExists(own)


@pytest.mark.slow
def test_procedures(flights: Any, spark: SparkSession) -> None:
    name, path, held = flights
    sql(spark, f"update {name} set ts = 2 where id = 1")
    commits = sql(spark, f"call show_commits(table => '{name}', limit => 5)").collect()
    assert [row.operation for row in commits] == ["upsert", "bulk_insert"]
    sql(spark, f"call run_clustering(table => '{name}', order => 'id')")
    assert sql(spark, f"call show_commits(path => '{path}', limit => 1)").collect()[0].operation == "cluster"
    assert held() == FIRST | {1: ("b", 1.5, 2)}
    with pytest.raises(UnsupportedTableError, match="did you mean 'show_commits'"):
        sql(spark, f"call show_comits(table => '{name}')")
    with pytest.raises(InvalidInputError, match="takes no colour"):
        sql(spark, f"call run_clustering(table => '{name}', colour => 'red')")


@pytest.mark.parametrize("case", cases(REFUSED))
def test_what_cannot_be_is_told_in_one_line(case: str, flights: Any, spark: SparkSession) -> None:
    name, _, held = flights
    text, error, said = REFUSED[case]
    said = r"spark\.view" if case == "a table nobody named" else said
    with pytest.raises(error, match=said) as caught:
        sql(spark, text.replace("{t}", name))
    assert "\n" not in str(caught.value)
    assert held() == FIRST


def test_a_table_tells_of_itself_without_a_job(flights: Any, spark: SparkSession) -> None:
    _, path, _ = flights
    table = LakehouseTable.forPath(spark, path)
    assert (table.exists(), table.count(), table.count("id > 3"), table.files().num_rows) == (True, 6, 2, 2)
    assert [field.name for field in table.schema.fields] == ["id", "part", "price", "ts"]
    assert not LakehouseTable.forPath(spark, f"{path}-nowhere").exists()


@pytest.mark.parametrize("guide", [HUDI, pytest.param(DELTA, marks=pytest.mark.slow)], ids=["hudi", "delta"])
def test_a_quick_start_runs_as_it_stands(guide: list[Step], spark: SparkSession, tmp_path: Path) -> None:
    play(guide, lambda text: [tuple(row) for row in sql(spark, text).collect()], str(tmp_path), next(_NUMBER))
    for table in tmp_path.iterdir():
        hudi_rs.assert_same_rows(lakeformat.open(table))
