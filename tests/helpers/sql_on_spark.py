"""The cases of `sql_cases` on a Spark session, classic or Connect: table, statement, and the expected state."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.spark import LakehouseTable, sql, view
from tests.helpers import hudi_rs
from tests.helpers.sql_cases import FIRST, REFUSED, STATEMENTS, Held

__all__ = ["check_refusal", "check_statement", "make_flights", "read_flights"]


def make_flights(spark: SparkSession, name: str, path: Path) -> None:
    """Create a table of the rows `FIRST` and register its name."""
    rows = spark.createDataFrame([(k, *v) for k, v in FIRST.items()], "id long, part string, price double, ts long")
    LakehouseTable.forPath(spark, str(path), recordkey="id", partitionpath="part").bulk_insert(rows)
    view(spark, name, str(path))


def read_flights(path: Path) -> Held:
    """Return the rows of the table. Fail if hudi-rs reads other rows."""
    rows = hudi_rs.assert_same_rows(lakeformat.open(path))
    return {row["id"]: (row["part"], row["price"], row["ts"]) for row in rows}


def check_statement(spark: SparkSession, case: str, name: str, path: Path) -> None:
    """Check that a statement of `STATEMENTS` leaves the expected rows, makes one commit and leaves no view."""
    text, wanted = STATEMENTS[case]
    before = {table.name for table in spark.catalog.listTables()}
    answers = sql(spark, text.replace("{t}", name).replace("{path}", str(path)) + ";").collect()
    assert read_flights(path) == wanted(dict(FIRST))
    assert len(answers) == 1
    assert len(lakeformat.open(path).history()) == 2
    assert {table.name for table in spark.catalog.listTables()} == before
    seen = {row["id"]: (row["part"], row["price"], row["ts"]) for row in sql(spark, f"select * from {name}").collect()}
    assert seen == wanted(dict(FIRST))


def check_refusal(spark: SparkSession, case: str, name: str, path: Path) -> None:
    """Check that a statement of `REFUSED` is refused in one line and changes nothing."""
    text, error, said = REFUSED[case]
    said = r"spark\.view" if case == "a table nobody named" else said
    with pytest.raises(error, match=said) as caught:
        sql(spark, text.replace("{t}", name))
    assert "\n" not in str(caught.value)
    assert read_flights(path) == FIRST
